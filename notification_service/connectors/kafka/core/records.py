"""Converts between Kafka's records and those of the service.

So a reader of the dead letters also reads what became of them. Note and requeued record are sent in one transaction, and
retention never deletes a note before its dead letter.

The markers' topic is compacted. The key of a marker is the transactional id of the partition's owner, which names the service and
the partition; the last record with a key counts. All markers are in the topic's first partition, so that one look there finds a
marker however many partitions the topic gets.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from guardian.headers import DEAD_LETTER_ACTION
from guardian.ports import PartitionOutput, Position, TransportRefused
from notification_service.connectors.dead_letters.actions import Action
from resequencer.clock import Instant
from resequencer.record import Cut, Headers, Origin, Partition, Record

BEGINNING_BYTES = 64 * 1024
"""How many bytes are kept of a value beyond the limit."""


RawHeaders = list[tuple[str, bytes | None]]
"""Headers as kafka-python represents them."""


class UndecodableHeaders(RawHeaders):
    """The headers of a damaged record; `defect` describes the damage.

    The client passes only a record's headers on unchanged, so the defect travels with them.
    """

    def __init__(self, headers: RawHeaders, defect: str) -> None:
        super().__init__(headers)
        self.defect = defect


class ProducerRecord(NamedTuple):
    """One record to be sent. The value None is null: it deletes a key.

    With `partition` None its key determines the partition. If that is null, too, `lane` does so instead of it.
    """

    topic: str
    key: bytes | None
    headers: Headers
    value: bytes | None
    partition: int | None = None
    timestamp: Instant | None = None
    lane: bytes | None = None


def to_records(partition: Partition, fetched: Iterable[Any], max_value_bytes: int) -> list[Record]:
    """Convert the records of one partition, in order.

    A value of more than `max_value_bytes` is cut. A part that the client cannot read becomes a defect. A header whose value is
    null gets an empty one: the client (kafka-python 3.0.12) cannot send it.
    """
    return [_to_record(Origin(partition, each.offset), each, max_value_bytes) for each in fetched]


def _to_record(origin: Origin, fetched: Any, max_value_bytes: int) -> Record:
    headers: Headers = tuple([(name, data or b"") for name, data in fetched.headers or ()])
    written_at = fetched.timestamp if fetched.timestamp is not None and fetched.timestamp >= 0 else None
    record = to_record(origin, fetched.key, fetched.value, headers, max_value_bytes, written_at)
    if isinstance(fetched.headers, UndecodableHeaders):
        return msgspec.structs.replace(record, defect=fetched.headers.defect)
    return record


def to_record(
    origin: Origin,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
    max_value_bytes: int,
    written_at: Instant | None = None,
) -> Record:
    """Convert a record that the service did not fetch itself, to what the service would make of it."""
    if value is not None and len(value) > max_value_bytes:
        cut = Cut(len(value), sha256(value).hexdigest())
        return Record(origin, value[: min(BEGINNING_BYTES, max_value_bytes)], key, headers, cut=cut, written_at=written_at)
    return Record(origin, value, key, headers, written_at=written_at)


def size_of(key: bytes | None, headers: Sequence[tuple[str, bytes]], value: bytes | None) -> int:
    """Return the largest size that the record takes in a batch of its own, in bytes (message format 2), uncompressed."""
    size = _BATCH_BYTES + _RECORD_BYTES + len(value or b"") + (len(key) if key is not None else 0)
    for name, data in headers:
        size += 2 * _VARINT_BYTES + len(data) + (len(name) if name.isascii() else len(name.encode()))
    return size


_BATCH_BYTES = 61
_VARINT_BYTES = 5
_RECORD_BYTES = 21 + 3 * _VARINT_BYTES
"""The sizes of length, attributes, timestamp and offset; then of the lengths of key and value and the number of headers."""


_DECODER: msgspec.json.Decoder[Action] = msgspec.json.Decoder(Action)


def is_note(headers: Headers) -> bool:
    """Return whether the record is a note. A note has this header only; a dead letter has others behind it in any case."""
    return len(headers) == 1 and headers[0][0] == DEAD_LETTER_ACTION


def note_of(topic: str, action: Action) -> ProducerRecord:
    """Return the note: its key is the number of the dead letter, its value the action as JSON."""
    return ProducerRecord(
        topic, action.number.encode(), ((DEAD_LETTER_ACTION, action.state.encode()),), msgspec.json.encode(action)
    )


def read_note(value: bytes) -> Action:
    """Decode a note. Raises ValueError with the problem if the value is no note."""
    try:
        return _DECODER.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"it is no note of what was done ({error})") from error


PARTITION = 0
"""The partition of the topic that has all markers."""


class Marker(msgspec.Struct, frozen=True):
    """`highest` is the highest number that is published, 0 for none."""

    offset: int
    metadata: str
    highest: int

    @property
    def position(self) -> Position:
        return Position(self.offset, self.metadata, highest=self.highest)

    def to_record(self, topic: str, key: str) -> ProducerRecord:
        return ProducerRecord(topic, key.encode(), (), msgspec.json.encode(self), PARTITION)


def highest_of(marker: Marker | None) -> int:
    """Return the highest published number; None is the marker of a partition from which nothing is published."""
    return 0 if marker is None else marker.highest


def marker_after(marker: Marker | None, output: PartitionOutput) -> Marker:
    """Return the marker once this output is published."""
    highest = max([highest_of(marker), output.position.highest, *(each.number for each in output.records)])
    return Marker(output.position.offset, output.position.metadata, highest)


def decode_marker(topic: str, key: str, value: bytes | None) -> Marker | None:
    """Return the marker in a record. None if it was deleted: as if nothing were published.

    Raises:
        TransportRefused: Another program has written the record.
    """
    if value is None:
        return None
    try:
        return msgspec.json.decode(value, type=Marker)
    except (msgspec.DecodeError, RecursionError) as error:
        problem = f"the last record with the key {key} is no marker ({error}): another program writes to the topic"
        raise TransportRefused(f"topic {topic}", f"{problem}. Set another kafka.markers.topic") from error
