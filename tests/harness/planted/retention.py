"""Faults of the clock that expires idle units, and of the code that forgets them, as mutations of the real code."""

from collections.abc import Sequence
from typing import Any

import msgspec
from harness.planted.protocol import Patch

from guardian.cycle import Cycle
from guardian.owned_partition import OwnedPartition
from guardian.ports import Polled
from resequencer.clock import Instant
from resequencer.storage_port import Commit
from resequencer.turn.turn import Turn


def retention_counted_by_the_wall_clock(patch: Patch) -> None:
    """The old rule: a unit is forgotten when its last change is long ago, even if records are unread."""

    def faulty(self: OwnedPartition, _: int, polled_at: Instant, __: Instant) -> None:
        self.caught_up_ms = self._surely_caught_up_ms = max(self.caught_up_ms, polled_at)

    patch.setattr(OwnedPartition, "note_reach", faulty)


def a_step_without_bound(patch: Patch) -> None:
    """The time of a clock that is set forward, or of a worker that stood still, counts in full."""
    patch.setattr("guardian.owned_partition._LONGEST_STEP_MS", 1 << 60)


def time_behind_a_backlog_counts(patch: Patch) -> None:
    right = OwnedPartition.note_reach
    patch.setattr(OwnedPartition, "note_reach", lambda self, _, *at: right(self, self.read_to, *at))


def time_behind_a_hanging_transaction_counts(patch: Patch) -> None:
    """Undecided records count as missing ones."""
    right = Cycle._note_reach

    def faulty(self: Cycle, polled: Polled, *at: Instant) -> None:
        right(self, msgspec.structs.replace(polled, log_ends=polled.ends), *at)

    patch.setattr(Cycle, "_note_reach", faulty)


def deadlines_wait_for_a_hanging_transaction(patch: Patch) -> None:
    right = Cycle._decide

    def faulty(self: Cycle, polled_at: Instant, polled: Polled, *rest: Any) -> Sequence[Turn]:
        return right(self, polled_at, msgspec.structs.replace(polled, ends=polled.log_ends), *rest)

    patch.setattr(Cycle, "_decide", faulty)


def the_clock_begins_anew_at_a_takeover(patch: Patch) -> None:
    right = OwnedPartition.__init__

    def faulty(self: OwnedPartition, *arguments: Any, **named: Any) -> None:
        right(self, *arguments, **named)
        self.caught_up_ms = 0

    patch.setattr(OwnedPartition, "__init__", faulty)


def a_takeover_counts_as_a_step(patch: Patch) -> None:
    """A worker that takes a partition over counts as having been its owner before."""
    right = OwnedPartition.__init__

    def faulty(self: OwnedPartition, *arguments: Any, **named: Any) -> None:
        right(self, *arguments, **named)
        self._caught_up_at = 0

    patch.setattr(OwnedPartition, "__init__", faulty)


def the_time_of_a_poll_ages_units_that_it_changes(patch: Patch) -> None:
    """What came while a poll went on changes its units at the clock of the poll's beginning."""
    right = OwnedPartition.note_reach

    def faulty(self: OwnedPartition, end: int, polled_at: Instant, _: Instant) -> None:
        right(self, end, polled_at, polled_at)

    patch.setattr(OwnedPartition, "note_reach", faulty)


def the_clock_is_not_stored(patch: Patch) -> None:
    right = OwnedPartition._commit

    def faulty(self: OwnedPartition, *arguments: Any) -> Commit:
        return msgspec.structs.replace(right(self, *arguments), caught_up_ms=self.store.header.caught_up_ms)

    patch.setattr(OwnedPartition, "_commit", faulty)


def expired_by_the_clock_of_another_partition(patch: Patch) -> None:
    """Units expire by the furthest clock of all partitions of the worker."""

    def faulty(self: Cycle) -> int:
        helds = list(self.partitions.owned.values())
        before = [owned._surely_caught_up_ms for owned in helds]
        try:
            for owned in helds:
                owned._surely_caught_up_ms = max(before)
            return right(self)
        finally:
            for owned, clock in zip(helds, before, strict=True):
                owned._surely_caught_up_ms = clock

    right = Cycle.expire
    patch.setattr(Cycle, "expire", faulty)
