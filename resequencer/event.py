"""Events: what a format reads in a record, as far as the engine looks at it, and why a record is none."""

from typing import ClassVar, Protocol

import msgspec

from resequencer.clock import Instant
from resequencer.dead_letter import DeadLetterReason
from resequencer.record import Record

FIRST_FORMAT = "ipf"
"""The format of what is stored without the name of one."""


class Event(msgspec.Struct, frozen=True, gc=False):
    """An event of a unit of work. A format makes it, or a subclass of its own with fields that its handlers read.

    `sequence` is 1 … 2^53-1, or None if the record has none and the strategy needs none. Two events with the same `event_id` are
    one event that came twice; `id_hash` is an 8-byte hash of it. `digest` is an 8-byte hash of all that the event says: another
    digest under the same id is a conflict. `parts` are the names of what the event brings, for completeness and for the unit's
    data. `weight` is its memory beside the record and a copy of that, in bytes. `entity` is the part of the organisation that it
    belongs to. `time` is when it happened by its producer's clock; `previous` is the id of the event before it.
    """

    CONFLICT: ClassVar[str] = (
        "event id {id!r} was seen before with another key, flow, sequence, type, time, previous or value; "
        "send the other event under an id of its own, and discard this one"
    )
    """Why a second event with the id of a first one is a dead letter."""

    unit: str
    flow: str
    sequence: int | None
    event_id: str
    id_hash: bytes
    digest: bytes
    record: Record
    parts: tuple[str, ...] = ()
    weight: int = 0
    entity: str | None = None
    time: Instant | None = None
    previous: str | None = None

    @property
    def offset(self) -> int:
        """The record's offset: the order of arrival within its partition."""
        return self.record.origin.offset


class Refusal(msgspec.Struct, frozen=True):
    """Why a record is no event. `error` is a short line with the field, its value and the remedy, without personal data."""

    reason: DeadLetterReason
    error: str


class Decoder(Protocol):
    """Makes an event of a record. One serves every partition."""

    def decode(self, record: Record) -> Event | Refusal:
        """Return the event in a record, or why there is none. Raises nothing, whatever the bytes are."""
        ...
