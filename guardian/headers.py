"""The headers of records: their names, and how they are written and read (docs/contract.md).

All are UTF-8. Of several headers with one name the last one counts, as in Kafka's own clients.
"""

import re
from typing import Final, NamedTuple

from msgspec.structs import replace

from resequencer.clock import Instant, instant_of, instant_text
from resequencer.dead_letter import DeadLetterReason
from resequencer.record import Cut, Headers, Origin, Partition, Record

SCHEMA_VERSION: Final = "schema-version"
"""The schema version of an input record: 1 or 2."""

NOTIFICATION_ID: Final = "notification-id"
ENVELOPE_ID: Final = "envelope-id"
SOURCE_POSITION: Final = "source-position"
"""`topic-partition@offset` of the record that caused the notification: the text of an `Origin`."""
EVENT_NAME: Final = "event-name"
PROCESS_FLOW_NAME: Final = "process-flow-name"
TRANSACTION_STATUS: Final = "transaction-status"
"""The ISO 20022 status code of a notification, such as ACSC."""
PROCESSING_ENTITY: Final = "processing-entity"
"""The processing entity that a notification is about."""
LOOKUPS_VERSION: Final = "lookups-version"
CHANNEL: Final = "channel"
LANGUAGE: Final = "language"

INCOMPLETE: Final = "incomplete"
"""Only on notifications of an envelope that was released incomplete: what was missing, comma-separated."""
RELEASED_BY: Final = "released-by"
"""Only on notifications of an envelope that was released incomplete by an order: `operator`."""
OPERATOR: Final = b"operator"
LATE: Final = "late"
POSSIBLE_DUPLICATE: Final = "possible-duplicate"
MARKED: Final = b"true"
"""The value of `late`, `possible-duplicate` and `amended`. Without the mark the header is absent."""

ORDER_ID: Final = "order-id"
ORDER_RESULT: Final = "order-result"
ORDER_PARTITION: Final = "order-partition"
"""`topic-partition` of the input: the partition whose owner executed the order."""
ORDER_OFFSET: Final = "order-offset"
"""Where the order is in the orders log of that partition."""

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
"""The trace context of W3C: of a record, and of the notifications that it leads to."""

DEAD_LETTER_REASON: Final = "dead-letter-reason"
DEAD_LETTER_ERROR: Final = "dead-letter-error"
DEAD_LETTER_SOURCE_POSITION: Final = "dead-letter-source-position"
DEAD_LETTER_AT: Final = "dead-letter-at"
DEAD_LETTER_VALUE_LENGTH: Final = "dead-letter-value-length"
DEAD_LETTER_VALUE_SHA256: Final = "dead-letter-value-sha256"
DEAD_LETTER_PREFIX: Final = "dead-letter-"
"""The prefix of all headers of dead letters. No header of a notification has it."""

DEAD_LETTER_ACTION: Final = "dead-letter-action"
"""The only header of a note in a dead-letter topic. The note records what an operator did with a dead letter."""
REQUEUED_FROM: Final = "requeued-from"
"""The number of the dead letter from which a record was requeued. It identifies a requeued record."""
REQUEUED_POSSIBLE_DUPLICATE: Final = "requeued-possible-duplicate"
REQUEUED_MARK: Final = (REQUEUED_POSSIBLE_DUPLICATE, MARKED)
"""Beside it: that dead letter was a possible duplicate, and so is all that follows from the record."""

DELIVERY_ID: Final = "delivery-id"
"""The idempotency key of a record that has no `notification-id`."""
DELIVERY_SUBMITTED_AT: Final = "delivery-submitted-at"
"""When the record was moved to the retry topic (ISO 8601, UTC)."""
DELIVERY_BACK_OFF: Final = "delivery-back-off"
"""How long it waits there, in ms."""
DELIVERY_SOURCE_POSITION: Final = "delivery-source-position"
"""`topic-partition@offset` of the record in the topic from which it was delivered first."""
DELIVERY_ATTEMPTS: Final = "delivery-attempts"
"""How many calls have failed so far."""
DELIVERY_ERROR: Final = "delivery-error"
"""What the last one failed with."""

GROUP_ID: Final = "group-id"
"""The group that a unit of work belongs to: for a payment, the message that it came in."""
GROUP_TOTAL: Final = "group-total"
"""How many payments the message has, as it says itself."""
GROUP_REPORT: Final = "group-report"
"""The number of a report on a group, from 1. A report takes the place of those with lower numbers."""
GROUP_STATUS: Final = "group-status"
"""The ISO 20022 status code of a whole group (`GrpSts`), if it has one. On a report whose group is not complete `incomplete` has
the number of payments whose final status is missing."""
AMENDED: Final = "amended"
"""Only on a report that takes the place of an earlier one: `true`."""
CLOSED_BY: Final = "closed-by"
"""Only on reports of a group that an operator has closed: who it was."""
AMOUNT: Final = "amount"
"""The amount of a payment and its currency: `12.50 EUR`."""
MEMBER: Final = "member"
"""The member of a group that a command is for. For a payment it is the unit of work."""
DUE: Final = "value-due"
"""Of a value in a store's topic: when its key is due, in ms since 1970."""

SCHEDULE: Final = "schedule"
"""The name of the schedule that has made a request."""
SCHEDULE_TICK: Final = "schedule-tick"
"""The tick that a request belongs to (ISO 8601, UTC)."""
SCHEDULE_REQUESTS: Final = "schedule-requests"
"""For how many requests of its key a request of a schedule stands: itself, and older ones that were never called; absent: 1."""

UNIT_OF_WORK: Final = "unit-of-work"
"""Of a record that leaves as it came: its unit, if that is not the text of its key."""
OURS: Final = "resequencer-"
"""The prefix of our headers in a record that leaves as it came. One of its own with such a name is kept under `ORIGINAL`."""
ORIGINAL: Final = "resequencer-original-"
_PASSED_THROUGH: Final = f"{OURS}{NOTIFICATION_ID}"
_RESERVED = frozenset(
    {
        *(NOTIFICATION_ID, ENVELOPE_ID, SOURCE_POSITION, UNIT_OF_WORK, INCOMPLETE, RELEASED_BY, LATE, POSSIBLE_DUPLICATE),
        *(TRACEPARENT, TRACESTATE, REQUEUED_FROM, REQUEUED_POSSIBLE_DUPLICATE),
    }
)
_RESERVED_PREFIXES = (OURS, DEAD_LETTER_PREFIX, "delivery-")

_LONGEST_ERRORS = {DEAD_LETTER_ERROR: 2_000, DELIVERY_ERROR: 1_000}
"""The longest errors in headers, in characters. Foreign errors may be long, and some transports limit headers."""
_OF_THE_WAY = frozenset({DELIVERY_SUBMITTED_AT, DELIVERY_BACK_OFF, DELIVERY_SOURCE_POSITION, DELIVERY_ATTEMPTS, DELIVERY_ERROR})
_ATTEMPTS = re.compile(r"0|[1-9][0-9]{0,8}")
_LENGTH = re.compile(r"0|[1-9][0-9]{0,17}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def dead_letter_headers(reason: DeadLetterReason, error: str, position: bytes, at: Instant, cut: Cut | None = None) -> Headers:
    """Return the headers that a dead letter adds to those of its record. `position` is the text of the record's origin."""
    return (
        (DEAD_LETTER_REASON, reason.value.encode()),
        _error_header(DEAD_LETTER_ERROR, error),
        (DEAD_LETTER_SOURCE_POSITION, position),
        (DEAD_LETTER_AT, instant_text(at).encode()),
        *(cut_headers(cut) if cut else ()),
    )


def cut_headers(cut: Cut) -> Headers:
    """Return the headers that describe a dead letter's value before it was cut."""
    return (DEAD_LETTER_VALUE_LENGTH, str(cut.length).encode()), (DEAD_LETTER_VALUE_SHA256, cut.sha256.encode())


def as_cut(record: Record) -> Record:
    """Return a record whose headers say that its value is a beginning, as the bridge writes it, with its `cut` and without them.

    Any other record is returned as it is.
    """
    found = [value for name, value in record.headers if name == DEAD_LETTER_VALUE_LENGTH]
    if not found or record.cut is not None:
        return record
    texts = texts_of(record.headers)
    length, digest = texts[DEAD_LETTER_VALUE_LENGTH], texts.get(DEAD_LETTER_VALUE_SHA256, "")
    if not (_LENGTH.fullmatch(length) and _SHA256.fullmatch(digest)):
        return record
    own = tuple(each for each in record.headers if each[0] not in (DEAD_LETTER_VALUE_LENGTH, DEAD_LETTER_VALUE_SHA256))
    return replace(record, headers=own, cut=Cut(int(length), digest))


def mark_headers(incomplete: str | None, *, is_late: bool, is_ordered: bool = False) -> Headers:
    """Return the marks of a new notification. `possible-duplicate` is added later, before the publication."""
    missing: Headers = () if incomplete is None else ((INCOMPLETE, incomplete.encode()),)
    if missing and is_ordered:
        missing = (*missing, (RELEASED_BY, OPERATOR))
    return (*missing, (LATE, MARKED)) if is_late else missing


def outcome_headers(order_id: str | None, result: str, partition: Partition, order_offset: int | None = None) -> Headers:
    """Return the headers of an order's outcome. An order that cannot be read has no id.

    `order_offset` is None for orders of delivery: their outcomes have no such header.
    """
    return (
        *(() if order_id is None else ((ORDER_ID, order_id.encode()),)),
        (ORDER_RESULT, result.encode()),
        (ORDER_PARTITION, str(partition).encode()),
        *(() if order_offset is None else ((ORDER_OFFSET, str(order_offset).encode()),)),
    )


class Way(NamedTuple):
    """What the headers tell of a record on its way through retry topics: its place in the source, the failed calls, and when it
    was moved to its topic. In the source there are no such headers.
    """

    origin: Origin
    attempts: int = 0
    submitted_at: Instant | None = None


def way_of(record: Record) -> Way:
    """Return what the headers tell. A record whose headers another program wrote begins again, where it is."""
    texts = texts_of(record.headers)
    origin, attempts = Origin.find(texts.get(DELIVERY_SOURCE_POSITION, "")), texts.get(DELIVERY_ATTEMPTS, "")
    if origin is None or not _ATTEMPTS.fullmatch(attempts):
        return Way(record.origin)
    try:
        return Way(origin, int(attempts), instant_of(texts.get(DELIVERY_SUBMITTED_AT, "")))
    except ValueError:
        return Way(record.origin)


def moved_headers(headers: Headers, way: Way, delivery_id: str, delay_ms: int, error: str, now: Instant) -> Headers:
    """Return the headers of the record in the next retry topic. `way.attempts` are the failed calls so far."""
    return (
        *own_headers(headers, delivery_id),
        (DELIVERY_SUBMITTED_AT, instant_text(now).encode()),
        (DELIVERY_BACK_OFF, str(delay_ms).encode()),
        (DELIVERY_SOURCE_POSITION, str(way.origin).encode()),
        (DELIVERY_ATTEMPTS, str(way.attempts).encode()),
        _error_header(DELIVERY_ERROR, error),
    )


def own_headers(headers: Headers, delivery_id: str) -> Headers:
    """Return the headers that the record had in the source, and its idempotency key: a requeued record keeps that."""
    own = tuple((name, value) for name, value in headers if name not in _OF_THE_WAY and name != DELIVERY_ID)
    return (*own, (DELIVERY_ID, delivery_id.encode()))


def texts_of(headers: Headers) -> dict[str, str]:
    """Return the values as text, by name. Invalid UTF-8 is replaced: another program may have written it."""
    return {name: value.decode(errors="replace") for name, value in headers}


def own_texts(headers: Headers) -> dict[str, str]:
    """Return our headers of a notification as text, by their names without a prefix; those of payments with all that is there.

    In a record that is no notification a header `unit-of-work` is none of ours.
    """
    texts = texts_of(headers)
    if _PASSED_THROUGH in texts:
        return texts_of(_ours_of(headers))
    if NOTIFICATION_ID not in texts:
        texts.pop(UNIT_OF_WORK, None)
    return texts


def find_ours(headers: Headers) -> Headers | None:
    """Return our headers of a record that passed through, by their names without the prefix; None for any other record."""
    return _ours_of(headers) if any(name == _PASSED_THROUGH for name, _ in headers) else None


def _ours_of(headers: Headers) -> Headers:
    ours = [each for each in headers if each[0].startswith(OURS) and not each[0].startswith(ORIGINAL)]
    return tuple((name.removeprefix(OURS), value) for name, value in ours)


def find_reserved(headers: Headers) -> str | None:
    """Return the name of a header that the service itself writes to a notification or reads from one; None if there is none."""
    return next((name for name, _ in headers if name in _RESERVED or name.startswith(_RESERVED_PREFIXES)), None)


def find_unit(key: bytes | None, texts: dict[str, str]) -> str | None:
    """Return the unit of a notification with this key and our headers `texts`; None if neither names one."""
    named = texts.get(UNIT_OF_WORK)
    return named if named is not None or key is None else key.decode(errors="replace")


def caused_by(headers: Headers, prefix: str) -> bytes:
    """Return the position of the record that led to a notification, in whose headers the names of ours begin with `prefix`."""
    named = dict(headers)
    if prefix:
        return named.get(f"{prefix}{SOURCE_POSITION}", b"")
    return named.get(DELIVERY_SOURCE_POSITION) or named.get(SOURCE_POSITION, b"")


def mark_of_dead_letter(headers: Headers, prefix: str) -> Headers:
    """Return the mark of the dead letter of a notification with these headers, if they have it under a prefix alone."""
    is_marked = bool(prefix) and any(name == f"{prefix}{POSSIBLE_DUPLICATE}" for name, _ in headers)
    return ((POSSIBLE_DUPLICATE, MARKED),) if is_marked else ()


def _error_header(name: str, error: str) -> tuple[str, bytes]:
    return name, error[: _LONGEST_ERRORS[name]].encode("utf-8", "replace")
