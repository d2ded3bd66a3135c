"""What the guardian and a resequencer actor say to each other. Frozen: Thespian hands messages over without copying them."""

import msgspec

from domain.clock import Instant
from domain.envelope import DataEnvelope
from domain.record import Partition
from resequencer.unit import Decision, Wake
from resequencer.working_copy import WITHOUT_END
from storage.port import Snapshot


class UnitKey(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A unit of work in its partition: what one resequencer is for. Looked up a dozen times a turn, so it keeps its hash."""

    partition: Partition
    unit: str


class Begin(msgspec.Struct, frozen=True, gc=False):
    """The first message to a new incarnation: which unit it is, and what its predecessor left. None: nothing was ever heard."""

    key: UnitKey
    snapshot: Snapshot | None


class TakeTurn(msgspec.Struct, frozen=True, gc=False):
    """Take your turn: these envelopes came, in order of arrival, then these wakes.

    It may let out about `share` bytes. With `is_careful` it was taken and raised: take it again, and set aside what it fails on.
    """

    key: UnitKey
    envelopes: tuple[DataEnvelope, ...]
    wakes: tuple[Wake, ...]
    now: Instant
    share: int = WITHOUT_END
    is_careful: bool = False


class TurnTaken(msgspec.Struct, frozen=True, gc=False):
    """What a turn led to; the unit stays with its actor."""

    key: UnitKey
    decision: Decision


class Refused(msgspec.Struct, frozen=True):
    """What the predecessor left cannot be used; the worker must stop and say why."""

    key: UnitKey
    error: Exception
