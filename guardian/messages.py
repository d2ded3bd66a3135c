"""The messages between the cycle and the guardian. The guardian answers every question with one message."""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from domain.clock import Instant
from domain.envelope import DataEnvelope
from domain.record import Partition
from guardian.partition_orders import Pauses
from resequencer.messages import UnitKey
from resequencer.turn.turn import Turn
from resequencer.unit import Ordered
from storage.port import Snapshot, Waits


class Arm(msgspec.Struct, frozen=True):
    """The waiting units of a partition that was taken over. A unit is loaded only when it is woken or gets an envelope."""

    waiting: Sequence[tuple[UnitKey, Waits]]


class Drop(msgspec.Struct, frozen=True):
    """A partition is no longer assigned: drop its units from memory without deciding anything."""

    partition: Partition


class Rest(msgspec.Struct, frozen=True):
    """The pauses of a partition have changed. While it is paused, its deadlines rest; afterwards they are later by that time."""

    partition: Partition
    pauses: Pauses


class Prepare(msgspec.Struct, frozen=True):
    """A poll that began at `polled_at` brought records for these units. Everything decided before is committed.

    `read_to` is the offset up to which each partition has been read, including this poll. `ends` is where its log ended when
    the poll began. About `limit` units are woken at once.
    """

    polled_at: Instant
    units: tuple[UnitKey, ...]
    read_to: Mapping[Partition, int]
    ends: Mapping[Partition, int]
    limit: int = 1_000


class Prepared(msgspec.Struct, frozen=True):
    """The units whose snapshots the guardian needs: units of the poll and units to wake that have no actor.

    `stopped` are the units whose actors the guardian stopped.
    """

    unknown: tuple[UnitKey, ...]
    stopped: tuple[UnitKey, ...] = ()


class Decide(msgspec.Struct, frozen=True):
    """Decide about the arrivals, each unit's envelopes in order of arrival, about the orders, and about the units to wake."""

    now: Instant
    arrivals: Mapping[UnitKey, tuple[DataEnvelope, ...]]
    snapshots: Mapping[UnitKey, Snapshot]
    orders: Mapping[UnitKey, tuple[Ordered, ...]] = {}


class Decided(msgspec.Struct, frozen=True):
    """The turn of each unit that took one, and the latest instant for the next question.

    `is_held_up` is set when the remainders are larger than the output of one cycle. Then the cycle should read as little as
    possible until they are worked off.
    """

    turns: Sequence[Turn]
    next_wake_at: Instant | None
    is_held_up: bool = False


class ListActive(msgspec.Struct, frozen=True):
    """List the units that are in memory, so that the storage does not expire them."""


class Active(msgspec.Struct, frozen=True):
    """The units with an actor, by partition. Partitions without such units are left out."""

    units: Mapping[Partition, Collection[str]]


class ReportUnits(msgspec.Struct, frozen=True):
    """Report what waits, for operators, with the `oldest` longest waits."""

    oldest: int = 10


class UnitsReport(msgspec.Struct, frozen=True):
    """Counts of units with an actor, units in which something waits, stashed envelopes and bytes; and the longest waits.

    `backlogged` counts the deadlines that have passed but wait for their backlog to be read. `unavailable` maps each server that
    handlers cannot reach to the number of units that wait for it. `held` counts the units that an order holds.
    """

    active: int
    waiting: int
    stashed: int
    stashed_bytes: int
    backlogged: int
    oldest: tuple[tuple[UnitKey, Waits], ...]
    unavailable: Mapping[str, int] = {}
    held: int = 0
