"""Every fault of the protocol, planted in the real code: the simulation must notice it, or it is decoration."""

from functools import cache

import planted_faults as plant
import pytest
from simulation.catalogue import PLANTED, Planted
from simulation.lives import reference, simulate

_MOST_SEEDS = 120

_expected = cache(reference)


@pytest.mark.slow
@pytest.mark.parametrize("planted", PLANTED, ids=[each.name for each in PLANTED])
def test_the_simulation_notices(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _first_noticed(planted, monkeypatch) is not None, f"nobody noticed {planted.name}"


def _first_noticed(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> int | None:
    """The first seed that goes wrong with the fault. What is expected was found without it."""
    for seed in range(_MOST_SEEDS):
        expected = _expected(seed, planted.life)
        with monkeypatch.context() as patch:
            planted.fault(patch)
            problem = simulate(seed, planted.life, expected).problem
        if problem is not None:
            assert not plant.is_misplaced(problem), problem
            return seed
    return None
