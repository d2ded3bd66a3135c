"""Every planted fault, the run in which it must be noticed, and a seed that notices it.

    PYTHONPATH=tests:. .venv/bin/python -m simulation.catalogue

prints them as a table.
"""

from typing import NamedTuple

from harness.planted import calls, kafka, memory, orders, retention, strategies
from harness.planted import mistakes as mistakes
from harness.planted import protocol as plant
from harness.planted import shares as share
from harness.planted import storages as storage
from harness.planted.protocol import Fault
from simulation.runs import SimulatedRun


class Planted(NamedTuple):
    """The run with `seed` notices the fault. After a change of the service another seed may be needed."""

    fault: Fault
    run: SimulatedRun
    seed: int

    @property
    def name(self) -> str:
        return f"{self.fault.__name__}-{self.run}"


_FAULTS: dict[SimulatedRun, dict[Fault, int]] = {
    SimulatedRun.CRASHES: {
        plant.publish_before_commit: 0,
        plant.watermark_one_too_low: 0,
        plant.watermark_one_too_high: 0,
        plant.watermark_of_the_whole_with_a_portion: 5,
        plant.portion_from_the_end: 1,
        kafka.portion_cut_anew_before_its_outcome_is_known: 136,
        plant.pending_not_stored: 0,
        plant.numbers_given_out_twice: 0,
        plant.every_second_dead_letter_left_out: 0,
        plant.deadline_not_armed_after_a_restart: 0,
        plant.deadline_begins_anew_after_a_restart: 0,
        plant.deadline_before_the_backlog_is_read: 4,
        plant.retry_not_stored: 10,
        plant.retry_never_woken: 10,
        plant.duplicate_counted_before_it_is_told: 1,
        plant.duplicates_not_told: 0,
        plant.stash_entry_not_removed: 0,
        plant.stash_entry_not_stored: 0,
        plant.unstashed_twice: 0,
        plant.dead_letters_count_as_handled: 2,
        plant.a_release_goes_on_as_it_began: 163,
        storage.no_compare_and_set: 0,
        storage.owner_compared_without_the_number: 34,
        storage.published_though_the_commit_was_refused: 80,
        storage.a_commit_stored_in_two_steps: 3,
        storage.decided_anew_after_a_time_out: 39,
        storage.dead_letters_without_numbers: 2,
        storage.waiting_units_expire: 7,
        storage.no_first_position: 5,
        storage.stopped_by_one_that_owns_nothing: 0,
        kafka.generation_minus_one_accepted: 0,
        kafka.snapshot_in_mid_rebalance: 21,
        kafka.metadata_taken_when_committing: 0,
        kafka.positions_read_while_undecided: 1,
        kafka.no_second_look_after_a_new_generation: 29,
        kafka.positions_committed_when_revoked: 0,
        kafka.stale_position_believed: 268,
        kafka.unknown_outcome_taken_as_failed: 4,
        kafka.unknown_outcome_taken_as_done: 4,
        kafka.position_read_before_the_predecessor_is_fenced: 1,
        kafka.another_transactional_id_each_time: 1,
        kafka.nothing_leaves_with_an_offset_that_stands: 0,
        kafka.a_refused_publication_is_forgotten: 1,
        kafka.a_refused_producer_used_again: 14,
        kafka.what_cannot_be_read_is_stepped_over: 0,
        memory.stash_bound_ignored: 0,
        memory.stash_bound_of_a_unit_rests_under_retry: 34,
        share.share_ignored: 0,
        share.what_was_cut_off_loses_its_marks: 2,
        share.what_was_cut_off_is_not_stored: 0,
        share.later_arrivals_overtake_the_rest: 0,
        share.what_was_cut_off_waits_for_the_next_arrival: 0,
        memory.idle_units_stay: 0,
        memory.units_stay_when_their_partition_goes: 0,
        mistakes.whole_poll_dead_lettered: 1,
        mistakes.innocent_one_dead_lettered: 1,
        mistakes.poison_left_in_the_stash: 1,
        mistakes.successors_wait_for_the_poison: 1,
        mistakes.deadline_that_fails_ends_the_worker: 2,
        mistakes.answered_while_a_turn_is_out: 1,
        mistakes.turn_that_raised_not_undone: 1,
        retention.retention_counted_by_the_wall_clock: 3,
        retention.time_behind_a_backlog_counts: 3,
        retention.time_behind_a_hanging_transaction_counts: 3,
        retention.deadlines_wait_for_a_hanging_transaction: 3,
        retention.the_clock_begins_anew_at_a_takeover: 3,
        retention.a_step_without_bound: 21,
        retention.expired_by_the_clock_of_another_partition: 3,
    },
    SimulatedRun.CLOCKS: {
        memory.takeover_waits_for_a_clock_that_was_set_back: 13,
        memory.a_clock_that_was_ahead_is_believed: 8,
        memory.deadline_lost_when_the_clock_is_set_back: 236,
    },
    SimulatedRun.SERVERS: {
        plant.attempts_counted_for_a_server: 0,
        plant.servers_never_tried_again: 0,
        plant.one_that_tried_in_vain_is_never_followed: 4,
        plant.a_try_that_was_cut_counts_as_failed: 127,
        plant.stash_released_while_its_server_is_unavailable: 0,
        retention.the_time_of_a_poll_ages_units_that_it_changes: 1_795_930_739,
    },
    SimulatedRun.DATABASE: {
        plant.heal_not_noticed: 1,
        plant.heal_does_not_mark: 1,
        storage.position_goes_back_when_healing: 1,
        storage.token_counted_instead_of_drawn: 115,
        storage.forgetting_noticed_by_the_offset_alone: 54,
        storage.healed_by_any_worker: 19,
        retention.a_takeover_counts_as_a_step: 9,
        retention.the_clock_is_not_stored: 54,
    },
    SimulatedRun.POSITIONS: {
        storage.numbers_kept_when_healing: 0,
    },
    SimulatedRun.ORDERS: {
        orders.order_executed_again_after_a_takeover: 0,
        orders.order_lost_at_a_takeover: 0,
        orders.order_executed_by_a_zombie: 0,
        orders.order_executed_though_its_unit_has_changed: 1,
        orders.order_forgotten_after_a_heal: 28,
        orders.outcome_published_twice: 0,
        orders.hold_forgotten_when_its_unit_leaves_memory: 0,
        orders.waiting_order_forgotten_when_its_unit_leaves_memory: 1,
        orders.waiting_order_stays_in_its_unit: 1,
        orders.waiting_order_not_asked_for_after_a_takeover: 1,
    },
    SimulatedRun.STRATEGIES: {
        strategies.links_forgotten_but_the_last: 5,
        strategies.next_lane_not_asked: 4,
        strategies.what_waits_for_another_one_is_forced_first: 5,
        strategies.a_link_that_was_given_up_is_not_late: 5,
        strategies.only_the_lane_that_was_cut_off_continues: 81,
        strategies.window_goes_by_arrival: 10,
        strategies.the_window_of_the_oldest_is_that_of_all: 36,
        strategies.what_left_the_window_is_forgotten: 0,
        strategies.what_left_the_window_in_time_is_marked: 0,
        strategies.first_sequence_ignored: 1,
        plant.deadline_before_the_backlog_is_read: 36,
    },
    SimulatedRun.CALLS: {
        calls.call_begins_before_its_commit: 0,
        calls.answer_of_an_earlier_ownership_accepted: 0,
        calls.late_answer_of_a_timed_out_call_accepted: 0,
        calls.called_head_not_stored: 0,
        calls.called_envelope_not_stored: 0,
        calls.next_call_beside_a_lingering_one: 2,
        calls.more_calls_than_the_limit: 1,
        calls.calls_not_made_again_after_a_takeover: 1,
    },
    SimulatedRun.NONE: {
        storage.position_waits_for_stashes_only: 0,
        storage.what_was_released_lets_the_position_go: 3,
        storage.what_left_in_part_is_taken_for_done: 4,
        storage.what_waits_is_taken_for_done: 0,
        storage.what_is_settled_is_taken_for_left: 1795871887,
        storage.done_offsets_forgotten: 0,
        storage.done_offsets_forgotten_by_the_second_crash: 1,
        storage.a_full_position_is_not_read_again: 128,
    },
}

PLANTED = tuple(Planted(fault, run, seed) for run, faults in _FAULTS.items() for fault, seed in faults.items())


def find_fault(name: str) -> Fault:
    """Return the fault of this name.

    Raises:
        ValueError: There is no such fault.
    """
    known = {each.__name__: each for each in (planted.fault for planted in PLANTED)}
    if name not in known:
        raise ValueError(name)
    return known[name]


def as_table() -> str:
    """Return all faults as a table of Markdown."""
    rows = [f"| {each.fault.__name__.replace('_', ' ')} | `{each.run}` | {each.seed} |" for each in PLANTED]
    return "\n".join(("| fault | run | seed |", "|---|---|---|", *rows))


if __name__ == "__main__":
    print(as_table())
