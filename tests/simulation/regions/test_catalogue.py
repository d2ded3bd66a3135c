"""Every fault of a region, planted in the real code or in a participant: the simulation must notice it, or it proves nothing."""

from pathlib import Path

import pytest
from harness.planted.noticing import check_noticed
from simulation.regions.catalogue import PLANTED, Planted
from simulation.regions.runs import reference, simulate


def test_the_documentation_names_this_catalogue_and_how_many_faults_it_has() -> None:
    page = Path(__file__).parents[3] / "docs" / "simulation.md"
    assert f"| `tests/simulation/regions/catalogue.py` | {len(PLANTED)} |" in page.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("planted", PLANTED, ids=[each.name for each in PLANTED])
def test_the_simulation_notices(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    def problem_of(seed: int) -> str | None:
        reference(seed)  # What is expected has no fault.
        with monkeypatch.context() as patch:
            planted.fault(patch)
            return simulate(seed, planted.run).problem

    check_noticed(planted.seed, problem_of)
