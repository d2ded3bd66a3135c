"""Every fault of the protocol, planted in the real code: the simulation must notice it, or it is decoration."""

from functools import cache

import planted_faults as plant
import pytest
from crash_simulation import Forgets, Outcome
from planted_faults import Fault, Patch
from simulation.kafka_faults import AMONG_CRASHES, WHEN_FORGETTING
from simulation.lives import reference, simulate

_MOST_SEEDS = 120
_GENERAL: tuple[Fault, ...] = (
    plant.publish_before_commit,
    plant.watermark_one_too_low,
    plant.watermark_one_too_high,
    plant.pending_not_stored,
    plant.numbers_given_out_twice,
    plant.every_second_dead_letter_left_out,
    plant.deadline_not_armed_after_a_restart,
    plant.deadline_before_the_backlog_is_read,
)
_FORGETTING: tuple[Fault, ...] = (*WHEN_FORGETTING, plant.heal_not_noticed, plant.heal_does_not_mark)
_ALL = [(fault, Forgets.NOTHING) for fault in (*AMONG_CRASHES, *_GENERAL)] + [(fault, Forgets.DATABASE) for fault in _FORGETTING]

_expected = cache(reference)


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "forgets"), _ALL, ids=[f"{fault.__name__}-{forgets}" for fault, forgets in _ALL])
def test_the_simulation_notices(fault: Fault, forgets: Forgets, monkeypatch: Patch) -> None:
    assert _first_noticed(fault, forgets, monkeypatch) is not None, f"nobody noticed {fault.__name__}"


def _first_noticed(fault: Fault, forgets: Forgets, monkeypatch: Patch) -> int | None:
    for seed in range(_MOST_SEEDS):
        expected: Outcome = _expected(seed)
        with monkeypatch.context() as patch:
            fault(patch)
            problem = simulate(seed, forgets, expected).problem
        if problem is not None:
            assert not plant.is_misplaced(problem), problem
            return seed
    return None
