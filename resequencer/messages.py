"""The messages between the guardian and a resequencer actor. Frozen, because Thespian delivers messages without a copy."""

import msgspec

from domain.envelope import DataEnvelope
from domain.record import Partition
from resequencer.batch import Batch
from resequencer.unit import Ordered, Wake
from storage.port import Snapshot


class UnitKey(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A unit of work in its partition. One resequencer belongs to it. Caches its hash, because a turn looks it up often."""

    partition: Partition
    unit: str


class TakeTurn(msgspec.Struct, frozen=True, gc=False):
    """Take a turn with these envelopes, in order of arrival, then these orders, and then these wakes, and count it off `batch`.

    An actor that is new restores its unit from `snapshot`; None for a new unit. With `is_careful` the turn raised before: it is
    repeated, and the envelopes on which it fails become dead letters.
    """

    key: UnitKey
    envelopes: tuple[DataEnvelope, ...]
    wakes: tuple[Wake, ...]
    batch: Batch
    snapshot: Snapshot | None = None
    is_careful: bool = False
    orders: tuple[Ordered, ...] = ()


class TurnsTaken(msgspec.Struct, frozen=True):
    """No turn of the batch is out any more."""

    batch: Batch


class Refused(msgspec.Struct, frozen=True):
    """The stored snapshot cannot be used; the worker must end and log the error."""

    key: UnitKey
    error: Exception
