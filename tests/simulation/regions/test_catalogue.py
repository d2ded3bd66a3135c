"""Every fault of a region, planted in the real code or in a participant: the simulation must notice it, or it proves nothing."""

from pathlib import Path

import pytest
from harness.planted.protocol import is_misplaced
from simulation.regions.catalogue import PLANTED, Planted, as_table
from simulation.regions.runs import reference, simulate

_MOST_SEEDS = 150


def test_the_documentation_lists_every_fault_with_the_seed_that_notices_it() -> None:
    page = Path(__file__).parents[3] / "docs" / "simulation.md"
    assert as_table() in page.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("planted", PLANTED, ids=[each.name for each in PLANTED])
def test_the_simulation_notices(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _find_noticing(planted, monkeypatch) is not None, f"no simulated run noticed {planted.name}"


def _find_noticing(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> int | None:
    """Return a seed whose run fails with the fault: the known one, or the first. The expected output has no fault."""
    for seed in (planted.seed, *range(_MOST_SEEDS)):
        reference(seed)
        with monkeypatch.context() as patch:
            planted.fault(patch)
            problem = simulate(seed, planted.run).problem
        if problem is not None:
            assert not is_misplaced(problem), problem
            return seed
    return None
