"""Every fault that a schedule prevents, planted in the real code: the simulation must notice it, or it proves nothing."""

from pathlib import Path

import pytest
from harness.planted.noticing import check_noticed
from harness.planted.schedules import SEEDS, plant
from harness.simulated_schedules.runs import simulate


def test_the_documentation_names_this_catalogue_and_how_many_faults_it_has() -> None:
    page = Path(__file__).parents[5] / "docs" / "simulation.md"
    assert f"| `tests/harness/planted/schedules.py` | {len(SEEDS)} |" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SEEDS)
def test_the_simulation_notices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, name)
    check_noticed(SEEDS[name], lambda seed: simulate(seed).problem)
