"""Faults of what bounds memory, and of what reads clocks: as mutations of the real code."""

from typing import Any

import pytest
from harness.planted.protocol import Patch

import resequencer.release
from domain.clock import Instant
from domain.record import Partition
from guardian.partitions import Ownership
from guardian.takeover_backoff import Later
from guardian.unit_registry import Dues, Roster


def stash_bound_ignored(patch: Patch) -> None:
    """Nobody leaves memory for the worker's stash."""
    patch.setattr(Roster, "_heaviest", lambda _: iter(()))


def stash_bound_of_a_unit_rests_under_retry(patch: Patch) -> None:
    right = resequencer.release.is_beyond_bound
    patch.setattr("resequencer.turn.is_beyond_bound", lambda copy: copy.is_free and right(copy))


def idle_units_stay(patch: Patch) -> None:
    """No actor is ever told to stop."""

    def faulty(self: Roster, *arguments: Any) -> Dues:
        return Dues(right(self, *arguments).wakes, ())

    right = Roster.dues
    patch.setattr(Roster, "dues", faulty)


def units_stay_when_their_partition_goes(patch: Patch) -> None:
    def faulty(self: Ownership, partition: Partition) -> None:
        with pytest.MonkeyPatch.context() as within:
            within.setattr(self._actors, "drop", lambda _: None)
            right(self, partition)

    right = Ownership._drop
    patch.setattr(Ownership, "_drop", faulty)


def deadline_lost_when_the_clock_is_set_back(patch: Patch) -> None:
    """One that was due, and is not any more once its backlog has been read."""

    def faulty(self: Roster, *arguments: Any) -> Dues:
        with pytest.MonkeyPatch.context() as within:
            within.setattr(self._wakeups, "arm", lambda *_: None)
            return right(self, *arguments)

    right = Roster.dues
    patch.setattr(Roster, "dues", faulty)


def a_clock_that_was_ahead_is_believed(patch: Patch) -> None:
    patch.setattr(Roster, "_by_this_clock", lambda self, key, waits, now: waits)


def takeover_waits_for_a_clock_that_was_set_back(patch: Patch) -> None:
    def faulty(self: Later, partition: Partition, now: Instant) -> bool:
        known = self.untaken.get(partition)
        return known is None or now >= known.next_at

    patch.setattr(Later, "is_due", faulty)
