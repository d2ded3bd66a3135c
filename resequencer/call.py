"""A call of a handler that waits, which runs beside the worker's thread, and its answer."""

from typing import Any

import msgspec

from resequencer.batch import UnitKey
from resequencer.clock import Instant
from resequencer.event import Event
from resequencer.handler import Handled, Marks


class Call(msgspec.Struct, frozen=True, eq=False):
    """What the handler gets for the head of a unit. `attempts` were made before.

    Two calls are equal only if they are one object.
    """

    envelope: Event
    data: Any
    marks: Marks
    now: Instant
    attempts: int = 0

    def is_of(self, offset: int, attempts: int) -> bool:
        """Whether it is the call of a head at this offset that has made so many attempts."""
        return (self.envelope.offset, self.attempts) == (offset, attempts)

    @property
    def key(self) -> UnitKey:
        return UnitKey(self.envelope.record.origin.partition, self.envelope.unit)


class Answer(msgspec.Struct, frozen=True, eq=False):
    """How a call ended: with what the handler made of it, or with what it raised, or with its time-out."""

    call: Call
    outcome: Handled | Exception

    @property
    def size(self) -> int:
        """The bytes of the output; of an error those of the dead letter to which it may lead."""
        if isinstance(self.outcome, Exception):
            return self.call.envelope.record.size
        return sum([each.size for each in self.outcome.notifications]) + sum([each.size for each in self.outcome.facts])

    def handled(self) -> Handled:
        """Return what the handler made, or raise what it raised."""
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome
