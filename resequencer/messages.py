"""The messages between the guardian and a resequencer actor. Frozen, because Thespian delivers messages without a copy."""

import msgspec

from domain.clock import Instant
from domain.envelope import DataEnvelope
from domain.record import Partition
from resequencer.turn.working_copy import WITHOUT_END
from resequencer.unit import Decision, Ordered, Wake
from storage.port import Snapshot


class UnitKey(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A unit of work in its partition. One resequencer belongs to it. Caches its hash, because a turn looks it up often."""

    partition: Partition
    unit: str


class Begin(msgspec.Struct, frozen=True, gc=False):
    """The first message to a new actor: its unit, and the unit's snapshot from storage; None for a new unit."""

    key: UnitKey
    snapshot: Snapshot | None


class TakeTurn(msgspec.Struct, frozen=True, gc=False):
    """Take a turn with these envelopes, in order of arrival, then these orders, and then these wakes.

    The turn may let out about `share` bytes. With `is_careful` the turn raised before: it is repeated, and the envelopes on which
    it fails become dead letters.
    """

    key: UnitKey
    envelopes: tuple[DataEnvelope, ...]
    wakes: tuple[Wake, ...]
    now: Instant
    share: int = WITHOUT_END
    is_careful: bool = False
    orders: tuple[Ordered, ...] = ()


class TurnTaken(msgspec.Struct, frozen=True, gc=False):
    """The decision of a turn. The unit itself stays in the actor."""

    key: UnitKey
    decision: Decision


class Refused(msgspec.Struct, frozen=True):
    """The stored snapshot cannot be used; the worker must end and log the error."""

    key: UnitKey
    error: Exception
