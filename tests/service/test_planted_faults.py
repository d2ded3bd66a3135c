"""Every fault that the exactly-once protocol prevents, planted: the simulation must notice it, or it proves nothing."""

from pathlib import Path
from typing import NamedTuple

import pytest
from harness.crashes.outcomes import Forgets
from harness.crashes.simulation import prepared, reference, simulate
from harness.planted import mistakes as mistakes
from harness.planted import protocol as plant
from harness.planted import shares as share
from harness.planted.noticing import check_noticed
from harness.planted.protocol import Fault, Patch

_SEEDS: dict[Forgets, dict[Fault, int]] = {
    Forgets.NOTHING: {
        plant.publish_before_commit: 0,
        plant.watermark_one_too_low: 0,
        plant.watermark_one_too_high: 1,
        plant.watermark_of_the_whole_with_a_portion: 5,
        plant.portion_from_the_end: 1,
        plant.pending_not_stored: 0,
        plant.deadline_not_armed_after_a_restart: 0,
        plant.deadline_begins_anew_after_a_restart: 2,
        plant.deadline_before_the_backlog_is_read: 18,
        plant.retry_not_stored: 0,
        plant.retry_never_woken: 0,
        plant.duplicate_counted_before_it_is_told: 1,
        plant.duplicates_not_told: 0,
        plant.stash_entry_not_removed: 0,
        plant.stash_entry_not_stored: 0,
        plant.unstashed_twice: 0,
        plant.every_second_dead_letter_left_out: 2,
        plant.numbers_given_out_twice: 0,
        plant.rotated_without_noting_what_left: 1,
        plant.begun_anew_without_noting_it: 2,
        plant.facts_written_behind_the_positions: 5,
        plant.facts_of_a_crash_not_found: 5,
        share.share_ignored: 0,
        share.what_was_cut_off_loses_its_marks: 14,
        share.later_arrivals_overtake_the_rest: 0,
        mistakes.whole_poll_dead_lettered: 5,
        mistakes.innocent_one_dead_lettered: 5,
        # Seed 1 notices it, too, after 3 000 cycles that lead to nothing: 19 s instead of 0.3 s.
        mistakes.poison_left_in_the_stash: 2,
        mistakes.successors_wait_for_the_poison: 1,
        mistakes.deadline_that_fails_ends_the_worker: 1,
        mistakes.answered_while_a_turn_is_out: 1,
        mistakes.turn_that_raised_not_undone: 1,
    },
    Forgets.DATABASE: {
        plant.takeover_ignores_what_left_beyond: 65,
        plant.heal_not_noticed: 1,
        plant.heal_does_not_mark: 0,
    },
}
"""A seed that notices the fault. After a change of the service another seed may be needed: the test names it."""

_IN_THE_FAST_RUN = (plant.publish_before_commit, share.share_ignored, plant.heal_does_not_mark, mistakes.poison_left_in_the_stash)
"""A fault of the protocol, of a bound, of a storage that forgot and of our own code. The slow run plants them all."""


class Planted(NamedTuple):
    fault: Fault
    forgets: Forgets
    seed: int


_PLANTED = tuple(Planted(fault, forgets, seed) for forgets, seeds in _SEEDS.items() for fault, seed in seeds.items())


def test_the_documentation_names_this_catalogue_and_how_many_faults_it_has() -> None:
    page = Path(__file__).parents[2] / "docs" / "simulation.md"
    assert f"| `tests/service/test_planted_faults.py` | {len(_PLANTED)} |" in page.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    "planted",
    [
        pytest.param(
            each, id=f"{each.fault.__name__}-{each.forgets}", marks=() if each.fault in _IN_THE_FAST_RUN else pytest.mark.slow
        )
        for each in _PLANTED
    ],
)
def test_the_simulation_notices(planted: Planted, monkeypatch: Patch) -> None:
    def problem_of(seed: int) -> str | None:
        expected = reference(prepared(seed))
        with monkeypatch.context() as patch:
            planted.fault(patch)
            return simulate(seed, planted.forgets, expected).problem

    check_noticed(planted.seed, problem_of)
