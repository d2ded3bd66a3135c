"""The rows that the audit groups by unit: notifications, dead letters, and input records."""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from guardian.headers import DEAD_LETTER_SOURCE_POSITION, NOTIFICATION_ID, UNIT_OF_WORK, find_ours, find_unit, texts_of
from notification_service.jobs.audit.observed import (
    ObservedDeadLetter,
    ObservedNotification,
    digest_of,
    observe,
    observe_dead_letter,
    observe_passed,
)
from notification_service.jobs.audit.rules import AuditRules
from notification_service.judgement.order_check import observe_outcome
from notification_service.payments.envelope import CustomObject, DataEnvelope, MdsObject, PdsObject, ProcessObject
from resequencer.clock import Instant
from resequencer.dead_letter import DeadLetterReason
from resequencer.event import Event, Refusal
from resequencer.order import OrderKind, OrderUnreadable, decode_order
from resequencer.record import Headers, Origin, Partition, Record

NOTIFICATION, DEAD_LETTER, OUTCOME, ORDER, RECORD, REFUSED, UNREADABLE = range(7)
"""The kinds of rows, in the order in which a unit's rows are processed."""

UNPLACED = -1
"""The partition of output records that name no source position."""

ORDERS = "\x00orders"
"""A stand-in unit for all orders of a partition and their outcomes; no real unit can have such a name."""

_OF_A_UNIT = ("too-large", "conflicting-duplicate", "too-many-objects", "handler-failed", "ended-its-worker", "ordered")
"""The reasons of dead letters whose records may be envelopes of a unit."""


class Arrived(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The part of an envelope that the row's own fields do not hold. `value_digest` is that of the record's bytes.

    A dead letter of the record must have the same digest. `record` is set only if it leaves, or the strategy may look at it. Of
    another format than IPF's the row has the record instead, which is decoded again.
    """

    flow: str
    sequence: int | None
    envelope_id: str
    id_hash: bytes
    digest: bytes
    parts: tuple[str, ...]
    mds_objects: tuple[MdsObject, ...]
    pds_objects: tuple[PdsObject, ...]
    custom_objects: tuple[CustomObject, ...]
    process_objects: tuple[ProcessObject, ...]
    processing_entity: str | None
    value_digest: bytes
    record: Record | None


class OutcomeRow(msgspec.Struct, frozen=True, array_like=True):
    """An outcome as it was published."""

    value: bytes
    is_possible_duplicate: bool


class RefusedRecord(msgspec.Struct, frozen=True, array_like=True):
    """A record that is no envelope: the reason, the error, and the digest of its bytes."""

    reason: DeadLetterReason
    error: str
    value_digest: bytes


_encode = msgspec.msgpack.Encoder().encode
read_outcome = msgspec.msgpack.Decoder(OutcomeRow).decode
read_notification = msgspec.msgpack.Decoder(ObservedNotification).decode
read_dead_letter = msgspec.msgpack.Decoder(ObservedDeadLetter).decode
_read_arrived = msgspec.msgpack.Decoder(Arrived).decode
_read_record = msgspec.msgpack.Decoder(Record).decode
read_refused = msgspec.msgpack.Decoder(RefusedRecord).decode


class Row(NamedTuple):
    """`place` orders the rows of one kind; a record's is its offset. `at` is when the record was written, None if unknown."""

    partition: int
    unit: str
    kind: int
    place: int
    at: Instant | None
    payload: bytes


def notification_row(key: bytes | None, headers: Headers, value: bytes | None, place: int) -> Row:
    ours = find_ours(headers)
    unit = find_unit(key, texts_of(tuple(each for each in ours or headers if each[0] == UNIT_OF_WORK)))
    seen = observe(headers, value or b"", place) if ours is None else observe_passed(key, headers, value, place, texts_of(ours))
    if seen is None or unit is None:
        return unreadable_row(place, f"a notification without a key or the header {NOTIFICATION_ID}")
    if "\0" in unit:
        return unreadable_row(place, "a notification of a unit that no record can name")
    partition = UNPLACED if seen.position is None else seen.position.partition.number
    return Row(partition, unit, NOTIFICATION, place, None, _encode(seen))


def dead_letter_row(record: Record, place: int, rules: AuditRules) -> Row:
    """Return the dead letter's row. It belongs to its unit if the unit's state caused it, else to its record's position."""
    position, dead_letter = observe_dead_letter(record.headers, record.content, place)
    if position is None:
        return unreadable_row(place, f"a dead letter without the header {DEAD_LETTER_SOURCE_POSITION}")
    unit = place_name(position.offset)
    if dead_letter.reason in _OF_A_UNIT:
        decoded = rules.decoder.decode(record)
        unit = unit if isinstance(decoded, Refusal) else decoded.unit
    return Row(position.partition.number, unit, DEAD_LETTER, position.offset, None, _encode(dead_letter))


def outcome_rows(headers: Headers, value: bytes, place: int) -> Iterator[Row]:
    """Yield the row of an order's outcome for the check of the orders, and another for the unit of the order."""
    try:
        seen = observe_outcome(headers, value)
    except OrderUnreadable as error:
        yield unreadable_row(place, f"an outcome of an order: {error}")
        return
    row = Row(seen.partition.number, ORDERS, OUTCOME, place, None, _encode(OutcomeRow(value, seen.is_possible_duplicate)))
    yield row
    order = seen.outcome.order
    if order is not None and order.unit is not None and b"\0" not in order.unit.encode():
        yield row._replace(unit=order.unit)


def order_rows(value: bytes, partition: int, offset: int) -> Iterator[Row]:
    """Yield the row of an order for the check of the orders; that of a hold also for its unit."""
    row = Row(partition, ORDERS, ORDER, offset, None, value)
    yield row
    try:
        order = decode_order(value)
    except OrderUnreadable:
        return
    if order.kind is OrderKind.HOLD and order.stage is None and order.unit is not None and b"\0" not in order.unit.encode():
        yield row._replace(unit=order.unit)


def record_row(record: Record, at: Instant | None, rules: AuditRules) -> Row:
    """Return the row of an input record. The record is decoded here, once, because grouping needs its unit."""
    partition, offset = record.origin.partition.number, record.origin.offset
    decoded, digest = rules.decoder.decode(record), digest_of(record.content)
    if isinstance(decoded, Refusal):
        payload = _encode(RefusedRecord(decoded.reason, decoded.error, digest))
        return Row(partition, place_name(offset), REFUSED, offset, at, payload)
    if not isinstance(decoded, DataEnvelope):
        return Row(partition, decoded.unit, RECORD, offset, at, _encode(record))
    arrived = Arrived(
        decoded.flow,
        decoded.sequence,
        decoded.envelope_id,
        decoded.id_hash,
        decoded.digest,
        decoded.parts,
        decoded.mds_objects,
        decoded.pds_objects,
        decoded.custom_objects,
        decoded.process_objects,
        decoded.processing_entity,
        digest,
        record if rules.needs_records else None,
    )
    return Row(partition, decoded.unit, RECORD, offset, at, _encode(arrived))


def unreadable_row(place: int, problem: str) -> Row:
    return Row(UNPLACED, f"\x00unreadable {place}", UNREADABLE, place, None, problem.encode())


def located(row: Row, where: str) -> Row:
    """Add the location of an unreadable output record to the row's text."""
    return row._replace(payload=f"{where}: ".encode() + row.payload)


def place_name(offset: int) -> str:
    """Return a stand-in unit for a record that names none; no real unit can have such a name."""
    return f"\x00{offset}"


def event_of(row: Row, partition: Partition, rules: AuditRules) -> tuple[Event, bytes]:
    """Rebuild the event from a row of kind `RECORD`; return it with the digest of the record's value."""
    if not rules.is_of_payments:
        record = _read_record(row.payload)
        decoded = rules.decoder.decode(record)
        assert not isinstance(decoded, Refusal), "it was decoded when its row was made"
        return decoded, digest_of(record.content)
    arrived = _read_arrived(row.payload)
    return _envelope_of(row, arrived, partition), arrived.value_digest


def _envelope_of(row: Row, arrived: Arrived, partition: Partition) -> DataEnvelope:
    return DataEnvelope(
        row.unit,
        arrived.flow,
        arrived.sequence,
        arrived.envelope_id,
        arrived.id_hash,
        arrived.digest,
        arrived.record or Record(Origin(partition, row.place), b""),
        arrived.parts,
        entity=arrived.processing_entity,
        mds_objects=arrived.mds_objects,
        pds_objects=arrived.pds_objects,
        custom_objects=arrived.custom_objects,
        process_objects=arrived.process_objects,
    )
