"""The rows that are brought together by unit: what was let out, what was set aside, and what arrived."""

from typing import NamedTuple

import msgspec

from domain.clock import Instant
from domain.dead_letter import DeadLetterReason
from domain.decoding import EnvelopeDecoder, Refusal
from domain.record import Headers, Origin, Partition, Record
from pipeline.audit.seen import SeenLetter, SeenNotification, see, see_letter

NOTIFICATION, LETTER, RECORD, REFUSED, UNREADABLE = range(5)
"""The kinds, in the order in which a unit's are looked at."""

_OF_A_UNIT = ("conflicting-duplicate", "handler-failed")
"""The reasons of dead letters whose records are envelopes."""

_encode = msgspec.msgpack.Encoder().encode
read_notification = msgspec.msgpack.Decoder(SeenNotification).decode
read_letter = msgspec.msgpack.Decoder(SeenLetter).decode
read_record = msgspec.msgpack.Decoder(tuple[bytes, str]).decode
read_refusal = msgspec.msgpack.Decoder(tuple[DeadLetterReason, str, bytes]).decode


class Row(NamedTuple):
    """`place` orders rows of a kind: of records it is the offset. `at` is when a record was written, where that is known."""

    partition: int
    unit: str
    kind: int
    place: int
    at: Instant | None
    payload: bytes


def notification_row(key: bytes | None, headers: Headers, value: bytes, place: int) -> Row:
    seen = see(headers, value, place)
    if seen is None or key is None:
        return unreadable_row(place, "a notification without a key or the header notification-id")
    if b"\0" in key:
        return unreadable_row(place, "a notification of a unit that no record can name")
    partition = -1 if seen.position is None else seen.position.partition
    return Row(partition, key.decode(errors="replace"), NOTIFICATION, place, None, _encode(seen))


def letter_row(record: Record, place: int, decoder: EnvelopeDecoder) -> Row:
    """To its unit, if it was set aside for what its unit knew; to the place of its record otherwise."""
    position, letter = see_letter(record.headers, record.value, place)
    if position is None:
        return unreadable_row(place, "a dead letter without the header dead-letter-source-position")
    unit = place_name(position.offset)
    if letter.reason in _OF_A_UNIT:
        decoded = decoder.decode(record)
        unit = unit if isinstance(decoded, Refusal) else decoded.unit
    return Row(position.partition, unit, LETTER, position.offset, None, _encode(letter))


def record_row(record: Record, at: Instant | None, decoder: EnvelopeDecoder) -> Row:
    origin, decoded = record.origin, decoder.decode(record)
    if isinstance(decoded, Refusal):
        payload = _encode((decoded.reason, decoded.error, record.value))
        return Row(origin.partition.number, place_name(origin.offset), REFUSED, origin.offset, at, payload)
    version = next((value.decode() for name, value in reversed(record.headers) if name == "schema-version"), "")
    return Row(origin.partition.number, decoded.unit, RECORD, origin.offset, at, _encode((record.value, version)))


def unreadable_row(place: int, problem: str) -> Row:
    return Row(-1, f"\x00unreadable {place}", UNREADABLE, place, None, problem.encode())


def place_name(offset: int) -> str:
    """Stands for the unit of a record that names none; no unit has such a name."""
    return f"\x00{offset}"


def record_of(row: Row, topic: str) -> Record:
    """The record of a row of that kind, without what was only needed to read it."""
    value, version = read_record(row.payload)
    headers: Headers = (("schema-version", version.encode()),) if version else ()
    return Record(Origin(Partition(topic, row.partition), row.place), value, headers=headers)
