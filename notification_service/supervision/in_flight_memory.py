"""Memory that a worker and its supervisor share: which envelopes the worker has in flight, and in which of its threads."""

import mmap
import os
from collections.abc import Iterable
from struct import Struct

import msgspec

from notification_service.events.identifiers import shown
from resequencer.event import Event
from resequencer.in_flight import MAX_THREADS, CallKind
from resequencer.record import Origin, Partition

_FIXED = Struct("<Qqq8s8sHHBB")
"""The number of the call, partition, offset, hash and digest of the envelope, the lengths of unit and topic, the call's kind,
and whether it is in flight. The last byte is written last, and cleared first: what is in flight is always whole.
"""
_CALL = Struct("<Q")
_IS_HELD = _FIXED.size - 1
_TOPIC = 128
_UNIT = 512
_SLOT_SIZE = 2_048
_THREADS_FROM = 3
_SIZE = (_THREADS_FROM + MAX_THREADS) * _SLOT_SIZE


class InFlightEnvelope(msgspec.Struct, frozen=True):
    """An envelope that a worker passed to a handler or to a user's code, in its `call`-th call.

    `identity` identifies id and content: another record may have the same position after a topic was recreated.
    """

    call: int
    origin: Origin
    unit: str
    kind: CallKind
    identity: str

    @property
    def places(self) -> dict[str, str]:
        """The places for a log line."""
        return {"unit": self.unit, "partition": str(self.origin.partition), "position": str(self.origin)}

    def __str__(self) -> str:
        of_unit = f" of unit {shown(self.unit)}" if self.unit else ""  # A record that is being read has none yet.
        return f"{self.kind.words} {self.origin}{of_unit}"


def identity_of(envelope: Event) -> str:
    """Return the identity in hexadecimal digits."""
    return (envelope.id_hash + envelope.digest).hex()


class InFlightSlot:
    """The envelope of one thread, at most one. Only this thread writes it, unless its writers have a lock."""

    def __init__(self, page: mmap.mmap, number: int) -> None:
        self._page = page
        self._at = number * _SLOT_SIZE
        self._unit_at = self._at + _UNIT
        self._held_at = self._at + _IS_HELD
        self._topic: str | None = None
        self._call = 0

    def take(self, envelope: Event, kind: CallKind) -> None:
        """Put an envelope in flight; none may be in flight before. Called around every call of a handler; takes half a
        microsecond.
        """
        (topic, number), offset = envelope.record.origin
        if topic != self._topic:
            self._write_topic(topic)
        page, at, unit_at, unit = self._page, self._at, self._unit_at, envelope.unit.encode()
        page[unit_at : unit_at + len(unit)] = unit
        self._call += 1
        _FIXED.pack_into(page, at, self._call, number, offset, envelope.id_hash, envelope.digest, len(unit), len(topic), kind, 1)

    def clear(self) -> None:
        self._page[self._held_at] = 0

    @property
    def call(self) -> int | None:
        """The number of the running call; None if none runs."""
        call: int = _CALL.unpack_from(self._page, self._at)[0]
        return call if self._page[self._held_at] else None

    def find(self) -> InFlightEnvelope | None:
        """Return the envelope in flight; None if there is none. Correct only for a worker that has ended, or does not move."""
        call, number, offset, id_hash, digest, unit_length, topic_length, code, is_held = _FIXED.unpack_from(self._page, self._at)
        if not is_held:
            return None
        topic = self._read(_TOPIC, topic_length)
        unit = self._read(_UNIT, unit_length)
        return InFlightEnvelope(call, Origin(Partition(topic, number), offset), unit, CallKind(code), (id_hash + digest).hex())

    def _read(self, place: int, length: int) -> str:
        return self._page[self._at + place : self._at + place + length].decode("utf-8", "replace")

    def _write_topic(self, topic: str) -> None:
        """Write the topic once, because all records of a service have the same."""
        encoded, begin = topic.encode(), self._at + _TOPIC
        self._page[begin : begin + len(encoded)] = encoded
        self._topic = topic


class InFlightMemory:
    """Memory shared by a worker and its supervisor. It is no file: a full disk would end the worker, and the envelope would be
    blamed.

    `turn` is the slot of the worker's own thread, `step` that of the thread of coroutines, for the step that is executed now, and
    `threads` are those of the threads that handle. `overdue` has a call that was to end and has not: it says nothing of a crash.

    The supervisor makes it and passes its descriptor on. Without a descriptor the memory is this process's own.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        if descriptor is not None:
            os.set_inheritable(descriptor, False)
        self._page = mmap.mmap(-1 if descriptor is None else descriptor, _SIZE)
        self.slots = tuple(InFlightSlot(self._page, number) for number in range(_THREADS_FROM + MAX_THREADS))
        self.turn, self.step, self.overdue = self.slots[:_THREADS_FROM]
        self.threads = self.slots[_THREADS_FROM:]

    def clear(self) -> None:
        for each in self.slots:
            each.clear()

    def find_executed(self) -> list[InFlightEnvelope]:
        """Return the envelopes of the calls that were being executed when the worker ended."""
        return distinct(each.find() for each in self.slots if each is not self.overdue)


def distinct(found: Iterable[InFlightEnvelope | None]) -> list[InFlightEnvelope]:
    """Return each envelope once: two threads may take part in one call."""
    return list({each.origin: each for each in found if each is not None}.values())


def new_descriptor() -> int:
    """Return the descriptor of memory that processes can share; the last process that ends frees it."""
    descriptor = os.memfd_create("resequencer-in_flight")
    os.ftruncate(descriptor, _SIZE)
    return descriptor
