"""A page of memory that a worker and its supervisor share: which envelope the worker has in flight."""

import mmap
import os
from struct import Struct

import msgspec

from notification_service.events.identifiers import shown
from resequencer.event import Event
from resequencer.in_flight import CallKind
from resequencer.record import Origin, Partition

_SIZE = 4_096
_FIXED = Struct("<Qqq8s8sHHBB")
"""The number of the call, partition, offset, hash and digest of the envelope, the lengths of unit and topic, the call's kind,
and whether it is in flight. The last byte is written last, and cleared first: what is in flight is always whole.
"""
_CALL = Struct("<Q")
_IS_HELD = _FIXED.size - 1
_TOPIC = 128
_UNIT = 512


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


class InFlightMemory:
    """Memory shared by a worker and its supervisor. It is no file: a full disk would end the worker, and the envelope would be
    blamed.

    The supervisor makes it and passes its descriptor on. Without a descriptor the memory is this process's own.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        if descriptor is not None:
            os.set_inheritable(descriptor, False)
        self._page = mmap.mmap(-1 if descriptor is None else descriptor, _SIZE)
        self._topic: str | None = None
        self._call = 0

    def put(self, envelope: Event, kind: CallKind) -> None:
        """Put an envelope in flight; none may be in flight before. Called around every call of a handler; takes half a
        microsecond.
        """
        (topic, number), offset = envelope.record.origin
        if topic != self._topic:
            self._write_topic(topic)
        page, unit = self._page, envelope.unit.encode()
        page[_UNIT : _UNIT + len(unit)] = unit
        self._call += 1
        _FIXED.pack_into(page, 0, self._call, number, offset, envelope.id_hash, envelope.digest, len(unit), len(topic), kind, 1)

    def clear(self) -> None:
        self._page[_IS_HELD] = 0

    @property
    def call(self) -> int | None:
        """The number of the running call; None if none runs."""
        call: int = _CALL.unpack_from(self._page)[0]
        return call if self._page[_IS_HELD] else None

    def find(self) -> InFlightEnvelope | None:
        """Return the envelope in flight; None if there is none. Correct only for a worker that has ended, or does not move."""
        call, number, offset, id_hash, digest, unit_length, topic_length, code, is_held = _FIXED.unpack_from(self._page)
        if not is_held:
            return None
        topic = self._page[_TOPIC : _TOPIC + topic_length].decode("utf-8", "replace")
        unit = self._page[_UNIT : _UNIT + unit_length].decode("utf-8", "replace")
        return InFlightEnvelope(call, Origin(Partition(topic, number), offset), unit, CallKind(code), (id_hash + digest).hex())

    def _write_topic(self, topic: str) -> None:
        """Write the topic once, because all records of a service have the same."""
        encoded = topic.encode()
        self._page[_TOPIC : _TOPIC + len(encoded)] = encoded
        self._topic = topic


def new_descriptor() -> int:
    """Return the descriptor of memory that processes can share; the last process that ends frees it."""
    descriptor = os.memfd_create("resequencer-in_flight")
    os.ftruncate(descriptor, _SIZE)
    return descriptor
