"""Every fault of the protocol, planted in the real code: the simulation must notice it, or the simulation proves nothing."""

import re
from functools import cache
from pathlib import Path

import pytest
from harness.planted import protocol as plant
from harness.planted.noticing import check_noticed
from simulation.catalogue import PLANTED, Planted
from simulation.runs import reference, simulate

_expected = cache(reference)


def test_the_documentation_names_this_catalogue_and_how_many_faults_it_has() -> None:
    page = Path(__file__).parents[2] / "docs" / "simulation.md"
    assert f"| `tests/simulation/catalogue.py` | {len(PLANTED)} |" in page.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("planted", PLANTED, ids=[each.name for each in PLANTED])
def test_the_simulation_notices(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    def problem_of(seed: int) -> str | None:
        expected = _expected(seed, planted.run)
        with monkeypatch.context() as patch:
            planted.fault(patch)
            return simulate(seed, planted.run, expected).problem

    check_noticed(planted.seed, problem_of)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "seed"), [(plant.dead_letters_count_as_handled, 2), (plant.a_release_goes_on_as_it_began, 163)]
)
def test_wrong_marks_are_noticed_where_what_is_expected_has_them_too(
    fault: plant.Fault, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    assert re.search("#[0-9] is marked (late|to lack)", simulate(seed).problem or "")
