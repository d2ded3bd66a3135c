"""What the cycle and the guardian say to each other; every question is answered with one message."""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from domain.clock import Instant
from domain.envelope import DataEnvelope
from domain.record import Partition
from resequencer.messages import TurnTaken, UnitKey
from storage.port import Snapshot, Waits


class Arm(msgspec.Struct, frozen=True):
    """A partition was taken over: these units of it wait. They are loaded only when they are woken or spoken to."""

    waiting: Sequence[tuple[UnitKey, Waits]]


class Drop(msgspec.Struct, frozen=True):
    """A partition is no longer ours: its units leave memory, undecided."""

    partition: Partition


class Prepare(msgspec.Struct, frozen=True):
    """A poll that began at `polled_at` brought something for these units. Everything decided before is committed.

    `read_to` is the offset up to which each partition has been read, this poll included, `ends` where its log ended when
    the poll began. About `limit` units are woken at once.
    """

    polled_at: Instant
    units: tuple[UnitKey, ...]
    read_to: Mapping[Partition, int]
    ends: Mapping[Partition, int]
    limit: int = 1_000


class Prepared(msgspec.Struct, frozen=True):
    """The units whose snapshots the guardian needs: those of the poll and those to be woken that have no actor.

    `stopped` are those whose actors it stopped.
    """

    unknown: tuple[UnitKey, ...]
    stopped: tuple[UnitKey, ...] = ()


class Decide(msgspec.Struct, frozen=True):
    """Decide about what arrived, each unit's envelopes in order of arrival, and about whoever is to be woken."""

    now: Instant
    arrivals: Mapping[UnitKey, tuple[DataEnvelope, ...]]
    snapshots: Mapping[UnitKey, Snapshot]


class Decided(msgspec.Struct, frozen=True):
    """One decision per unit that took a turn, and when the guardian wants to be asked again at the latest.

    `is_held_up` when more was left over than a cycle lets out: until that has left, hardly anything should be read.
    """

    decisions: tuple[TurnTaken, ...]
    next_wake_at: Instant | None
    is_held_up: bool = False


class ListActive(msgspec.Struct, frozen=True):
    """Name the units that are in memory, so that the storage keeps them."""


class Active(msgspec.Struct, frozen=True):
    """The units with an actor, by partition; a partition without any is left out."""

    units: Mapping[Partition, Collection[str]]


class ReportUnits(msgspec.Struct, frozen=True):
    """What waits, for operators."""

    oldest: int = 10


class UnitsReport(msgspec.Struct, frozen=True):
    """Units with an actor, units in which something waits, stashed envelopes and bytes, and the longest waits.

    `backlogged` counts the deadlines that have passed but wait for their backlog to be read. `unavailable` are the servers that
    handlers cannot reach, with how many units wait for each.
    """

    active: int
    waiting: int
    stashed: int
    stashed_bytes: int
    backlogged: int
    oldest: tuple[tuple[UnitKey, Waits], ...]
    unavailable: Mapping[str, int] = {}
