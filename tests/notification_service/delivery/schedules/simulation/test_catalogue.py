"""Every fault that a schedule prevents, planted in the real code: the simulation must notice it, or it proves nothing."""

from pathlib import Path

import pytest
from harness.planted.noticing import check_noticed
from harness.planted.schedules import SEEDS, as_table, plant
from harness.simulated_schedules.runs import simulate


def test_the_documentation_lists_every_fault_with_the_seed_that_notices_it() -> None:
    page = Path(__file__).parents[5] / "docs" / "simulation.md"
    assert as_table() in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SEEDS)
def test_the_simulation_notices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, name)
    check_noticed(SEEDS[name], lambda seed: simulate(seed).problem)
