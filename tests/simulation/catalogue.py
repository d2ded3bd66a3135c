"""Every planted fault, and the life in which it must be noticed."""

from typing import NamedTuple

import planted_faults as plant
from planted_faults import Fault
from simulation import kafka_faults as kafka
from simulation import storage_faults as storage
from simulation.lives import Life


class Planted(NamedTuple):
    fault: Fault
    life: Life

    @property
    def name(self) -> str:
        return f"{self.fault.__name__}-{self.life}"


_FAULTS: dict[Life, tuple[Fault, ...]] = {
    Life.CRASHES: (
        plant.publish_before_commit,
        plant.watermark_one_too_low,
        plant.watermark_one_too_high,
        plant.pending_not_stored,
        plant.numbers_given_out_twice,
        plant.every_second_dead_letter_left_out,
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
        storage.no_compare_and_set,
        storage.owner_compared_without_the_number,
        storage.published_though_the_commit_was_refused,
        storage.a_commit_stored_in_two_steps,
        storage.decided_anew_after_a_time_out,
        storage.dead_letters_without_numbers,
        storage.waiting_units_expire,
        storage.no_first_position,
        storage.stopped_by_a_stranger,
        kafka.generation_minus_one_accepted,
        kafka.snapshot_in_mid_rebalance,
        kafka.metadata_taken_when_committing,
        kafka.positions_read_while_undecided,
        kafka.no_second_look_after_a_new_generation,
        kafka.positions_committed_when_revoked,
        kafka.unknown_outcome_taken_as_failed,
        kafka.unknown_outcome_taken_as_done,
        kafka.position_read_before_the_predecessor_is_fenced,
        kafka.another_transactional_id_each_time,
        kafka.nothing_leaves_with_an_offset_that_stands,
        kafka.a_refused_publication_is_forgotten,
        kafka.a_refused_producer_used_again,
    ),
    Life.DATABASE: (
        plant.heal_not_noticed,
        plant.heal_does_not_mark,
        storage.position_goes_back_when_healing,
    ),
    Life.POSITIONS: (storage.numbers_kept_when_healing,),
    Life.NONE: (
        kafka.positions_read_while_undecided,
        storage.position_waits_for_stashes_only,
        storage.what_waits_is_taken_for_done,
        storage.what_is_done_ahead_forgotten,
        storage.done_ahead_forgotten_by_the_second_crash,
    ),
}
NOT_NOTICED_YET: tuple[Fault, ...] = (
    storage.token_counted_instead_of_drawn,
    storage.forgetting_noticed_by_the_offset_alone,
    storage.healed_by_whoever_comes,
    kafka.stale_position_believed,
)
"""No life of the first hundred comes into the situation in which these matter: what guards against them is not shown here."""

PLANTED = tuple(Planted(fault, life) for life, faults in _FAULTS.items() for fault in faults)


def find_fault(name: str) -> Fault:
    """By its name.

    Raises:
        ValueError: There is none.
    """
    known = {each.fault.__name__: each.fault for each in PLANTED}
    if name not in known:
        raise ValueError(name)
    return known[name]
