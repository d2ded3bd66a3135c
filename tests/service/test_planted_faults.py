"""Every fault that the exactly-once protocol prevents, planted: the simulation must notice it, or it proves nothing."""

import re
from pathlib import Path

import pytest
from harness.crashes.outcomes import Forgets
from harness.crashes.simulation import prepared, reference, simulate
from harness.planted import mistakes as mistakes
from harness.planted import protocol as plant
from harness.planted import shares as share
from harness.planted.protocol import Fault, Patch

_MOST_SEEDS = 120


CRASHES: tuple[Fault, ...] = (
    plant.publish_before_commit,
    plant.watermark_one_too_low,
    plant.watermark_one_too_high,
    plant.watermark_of_the_whole_with_a_portion,
    plant.portion_from_the_end,
    plant.pending_not_stored,
    plant.deadline_not_armed_after_a_restart,
    plant.deadline_begins_anew_after_a_restart,
    plant.deadline_before_the_backlog_is_read,
    plant.retry_not_stored,
    plant.retry_never_woken,
    plant.duplicate_counted_before_it_is_told,
    plant.duplicates_not_told,
    plant.stash_entry_not_removed,
    plant.stash_entry_not_stored,
    plant.unstashed_twice,
    plant.every_second_dead_letter_left_out,
    plant.numbers_given_out_twice,
    plant.rotated_without_noting_what_left,
    plant.begun_anew_without_noting_it,
    share.share_ignored,
    share.what_was_cut_off_loses_its_marks,
    share.later_arrivals_overtake_the_rest,
    mistakes.whole_poll_dead_lettered,
    mistakes.innocent_one_dead_lettered,
    mistakes.poison_left_in_the_stash,
    mistakes.successors_wait_for_the_poison,
    mistakes.deadline_that_fails_ends_the_worker,
)
FORGETTING: tuple[tuple[Fault, Forgets], ...] = (
    (plant.takeover_ignores_what_left_beyond, Forgets.DATABASE),
    (plant.heal_not_noticed, Forgets.DATABASE),
    (plant.heal_does_not_mark, Forgets.DATABASE),
)
_ALL = [(fault, Forgets.NOTHING) for fault in CRASHES] + list(FORGETTING)


def test_the_documentation_lists_every_fault() -> None:
    page = (Path(__file__).parents[2] / "docs" / "simulation.md").read_text(encoding="utf-8").partition("One worker on files")[2]
    assert re.findall(r"^\| (\w[\w ]+) \| \w+ \| \d+ \|$", page, re.MULTILINE) == [
        fault.__name__.replace("_", " ") for fault, _ in _ALL
    ]


@pytest.mark.parametrize(("fault", "forgets"), _ALL, ids=[f"{fault.__name__}-{forgets}" for fault, forgets in _ALL])
def test_the_simulation_notices(fault: Fault, forgets: Forgets, monkeypatch: Patch) -> None:
    assert _first_noticed(fault, forgets, monkeypatch) is not None, f"no simulation noticed {fault.__name__}"


def _first_noticed(fault: Fault, forgets: Forgets, monkeypatch: Patch) -> int | None:
    """Return the first seed whose run fails with the fault. The expected output is one without the fault."""
    for seed in range(_MOST_SEEDS):
        expected = reference(prepared(seed))
        with monkeypatch.context() as patch:
            fault(patch)
            problem = simulate(seed, forgets, expected).problem
        if problem is not None:
            assert not plant.is_misplaced(problem), problem
            return seed
    return None
