"""Every fault of the protocol, planted in the real code: the simulation must notice it, or it is decoration."""

from functools import cache
from pathlib import Path

import planted_faults as plant
import pytest
from simulation.catalogue import PLANTED, Planted, as_table
from simulation.lives import reference, simulate

_MOST_SEEDS = 120

_expected = cache(reference)


def test_the_documentation_lists_every_fault_with_the_seed_that_notices_it() -> None:
    page = Path(__file__).parents[2] / "docs" / "simulation.md"
    assert as_table() in page.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("planted", PLANTED, ids=[each.name for each in PLANTED])
def test_the_simulation_notices(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _find_noticing(planted, monkeypatch) is not None, f"nobody noticed {planted.name}"


def _find_noticing(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> int | None:
    """A seed that goes wrong with the fault: the one that is known, or the first. What is expected was found without it."""
    for seed in (planted.seed, *range(_MOST_SEEDS)):
        expected = _expected(seed, planted.life)
        with monkeypatch.context() as patch:
            planted.fault(patch)
            problem = simulate(seed, planted.life, expected).problem
        if problem is not None:
            assert not plant.is_misplaced(problem), problem
            return seed
    return None
