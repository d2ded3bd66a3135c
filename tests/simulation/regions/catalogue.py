"""Every planted fault of a region, the run in which it must be noticed, and a seed that notices it.

    PYTHONPATH=tests:. .venv/bin/python -m simulation.regions.catalogue

prints them as a table.
"""

from typing import NamedTuple

from harness.planted import protocol
from harness.planted import regions as plant
from harness.planted.regions import Fault
from simulation.regions.runs import RegionRun


class Planted(NamedTuple):
    """The run with `seed` notices the fault. After a change of the service another seed may be needed."""

    fault: Fault
    run: RegionRun
    seed: int

    @property
    def name(self) -> str:
        return f"{self.fault.__name__}-{self.run}"


_FAULTS: dict[RegionRun, dict[Fault, int]] = {
    RegionRun.CRASHES: {
        plant.acknowledged_before_the_sinks: 0,
        plant.acknowledged_after_the_first_sink: 1,
        plant.acknowledged_above_the_position: 2,
        plant.forgetting_sink_last: 2,
        plant.position_of_the_first_sink: 22,
        plant.position_of_the_furthest_sink: 22,
        plant.beyond_taken_from_one_sink_for_all: 11,
        plant.sink_without_a_marker_not_noticed: 35,
        plant.sinks_not_asked_where_the_source_knows: 0,
        plant.nothing_left_passed_on_though_another_sink_is_undecided: 1009,
        plant.nothing_left_of_the_second_sink_not_passed_on: 68,
        plant.marker_not_fenced: 0,
        plant.marker_written_after_the_transaction: 0,
        plant.marker_written_before_the_records: 16,
        plant.highest_number_not_kept: 68,
        plant.highest_number_not_kept_in_files: 1,
        plant.repeated_records_not_passed_over: 0,
        plant.another_owners_marker_adopted: 1499,
        plant.unknown_outcome_of_a_sink_taken_as_done: 205,
        plant.source_state_not_committed: 2,
        plant.source_state_cleared_at_the_first_new_message: 27,
        plant.source_state_never_cleared: 2,
        plant.what_comes_again_told_by_how_often_it_was_delivered: 2,
        plant.what_comes_again_told_by_its_age: 34,
        plant.what_was_taken_here_is_settled_when_it_comes_again: 34,
        protocol.publish_before_commit: 0,
        protocol.pending_not_stored: 0,
        protocol.watermark_one_too_high: 0,
        protocol.numbers_given_out_twice: 0,
    },
    RegionRun.STORAGE: {
        plant.highest_number_of_the_sinks_ignored: 170,
        plant.sink_ahead_of_the_storage_not_noticed: 170,
        plant.acknowledged_before_the_seek: 0,
        plant.queue_healed_with_offsets_from_the_start: 725,
        plant.queue_healed_without_marks: 109,
        protocol.heal_not_noticed: 6,
        protocol.heal_does_not_mark: 1,
    },
    RegionRun.MARKERS: {
        plant.marker_missing_and_pending_filtered: 273,
        plant.marker_missing_and_nothing_marked: 1,
    },
    RegionRun.RESETS: {
        plant.units_kept_in_a_reset: 0,
        plant.positions_kept_in_a_reset: 2,
    },
    RegionRun.INITIAL: {
        plant.initial_state_not_marked: 0,
        plant.initial_state_numbers_from_the_start: 17,
    },
    RegionRun.SINKS: {
        plant.position_of_the_last_sink: 97,
    },
}

PLANTED = tuple(Planted(fault, run, seed) for run, faults in _FAULTS.items() for fault, seed in faults.items())


def find_fault(name: str) -> Fault:
    """Return the fault of this name.

    Raises:
        ValueError: There is no such fault.
    """
    known = {each.fault.__name__: each.fault for each in PLANTED}
    if name not in known:
        raise ValueError(name)
    return known[name]


def as_table() -> str:
    """Return all faults as a table of Markdown."""
    rows = [f"| {each.fault.__name__.replace('_', ' ')} | `{each.run}` | {each.seed} |" for each in PLANTED]
    return "\n".join(("| fault | run | seed |", "|---|---|---|", *rows))


if __name__ == "__main__":
    print(as_table())
