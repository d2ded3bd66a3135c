"""Every fault that delivery prevents, planted in the real code: the simulation must notice it, or it proves nothing."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from harness.planted.delivery import SEEDS, plant
from harness.planted.noticing import check_noticed
from harness.simulated_delivery.runs import simulate

_QUICK = ("positions written before the rows", "complete before all is read", "no row goes next", "a retry without a wait")


def test_the_documentation_names_this_catalogue_and_how_many_faults_it_has() -> None:
    page = Path(__file__).parents[4] / "docs" / "simulation.md"
    assert f"| `tests/harness/planted/delivery.py` | {len(SEEDS)} |" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [each if each in _QUICK else pytest.param(each, marks=pytest.mark.slow) for each in SEEDS])
def test_the_simulation_notices(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plant(monkeypatch, name)
    check_noticed(SEEDS[name], lambda seed: _problem(seed, tmp_path))


def _problem(seed: int, directory: Path) -> str | None:
    with TemporaryDirectory(dir=directory) as own:
        return simulate(seed, Path(own)).problem
