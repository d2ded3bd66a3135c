"""Faults of the code that bounds memory and of the code that reads clocks, as mutations of the real code."""

from typing import Any

import pytest
from harness.planted.protocol import Patch

import resequencer.turn.release
from guardian.partitions import Partitions
from guardian.takeover import TakeoverBackoff
from guardian.unit_registry import Dues, UnitRegistry
from resequencer.clock import Instant
from resequencer.record import Partition


def stash_bound_ignored(patch: Patch) -> None:
    """No unit is evicted from memory when the worker's stash is full."""
    patch.setattr(UnitRegistry, "_heaviest", lambda _: iter(()))


def stash_bound_of_a_unit_rests_under_retry(patch: Patch) -> None:
    right = resequencer.turn.release.is_beyond_bound
    patch.setattr("resequencer.turn.decide.is_beyond_bound", lambda turn: turn.unit.is_free and right(turn))


def idle_units_stay(patch: Patch) -> None:
    """No actor is ever stopped."""

    def faulty(self: UnitRegistry, *arguments: Any) -> Dues:
        return Dues(right(self, *arguments).wakes, ())

    right = UnitRegistry.dues
    patch.setattr(UnitRegistry, "dues", faulty)


def units_stay_when_their_partition_goes(patch: Patch) -> None:
    def faulty(self: Partitions, partition: Partition) -> None:
        with pytest.MonkeyPatch.context() as within:
            within.setattr(self._actors, "drop", lambda _: None)
            right(self, partition)

    right = Partitions._drop
    patch.setattr(Partitions, "_drop", faulty)


def deadline_lost_when_the_clock_is_set_back(patch: Patch) -> None:
    """The lost deadline was due, and is not due any more when its backlog has been read."""

    def faulty(self: UnitRegistry, *arguments: Any) -> Dues:
        with pytest.MonkeyPatch.context() as within:
            within.setattr(self._timers, "arm", lambda *_: None)
            return right(self, *arguments)

    right = UnitRegistry.dues
    patch.setattr(UnitRegistry, "dues", faulty)


def a_clock_that_was_ahead_is_believed(patch: Patch) -> None:
    patch.setattr(UnitRegistry, "_by_this_clock", lambda self, key, waits, now: waits)


def takeover_waits_for_a_clock_that_was_set_back(patch: Patch) -> None:
    def faulty(self: TakeoverBackoff, partition: Partition, now: Instant) -> bool:
        known = self.untaken.get(partition)
        return known is None or now >= known.next_at

    patch.setattr(TakeoverBackoff, "is_due", faulty)
