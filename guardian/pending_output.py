"""Output as records for the transport, and as the pending bytes that the storage keeps until they are published."""

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from guardian.headers import (
    DEAD_LETTER_SOURCE_POSITION,
    MARKED,
    POSSIBLE_DUPLICATE,
    REQUEUED_MARK,
    SOURCE_POSITION,
    dead_letter_headers,
    outcome_headers,
    texts_of,
)
from guardian.ports import Channel, OutputRecord
from resequencer.clock import Instant
from resequencer.dead_letter import DeadLetter
from resequencer.notification import Fact, Notification
from resequencer.order import OrderOutcome, encode_outcome
from resequencer.record import Headers, Origin, Partition
from resequencer.storage_port import Pending, StorageRefused
from resequencer.turn.turn import Output

_NOTIFICATIONS = Channel.NOTIFICATIONS
_MARK = (POSSIBLE_DUPLICATE, MARKED)
_POSITION = {
    Channel.NOTIFICATIONS: SOURCE_POSITION,
    Channel.DEAD_LETTERS: DEAD_LETTER_SOURCE_POSITION,
    Channel.FACTS: SOURCE_POSITION,
}


class _Stored(msgspec.Struct, frozen=True, array_like=True, gc=False):
    channel: Channel
    key: bytes | None
    headers: Headers
    value: bytes | None
    offset: int | None = None
    prefix: str = ""
    timestamp: Instant | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Stored).decode


def find_origin(what: Output) -> Origin | None:
    """The origin of the record that caused it, None if an order did."""
    if isinstance(what, Notification):
        return what.origin
    if isinstance(what, OrderOutcome):
        return None
    return what.record.origin if isinstance(what, DeadLetter) else what.origin


def offset_of(number: int, what: Output) -> int:
    """The offset of the input record that caused the output with this number. If an order did: a unique negative number."""
    origin = find_origin(what)
    return -number if origin is None else origin.offset


def offset_behind(each: OutputRecord) -> int:
    """The offset of the input record that caused an output record. Without a position header: a unique negative number."""
    if each.offset is not None:
        return each.offset
    origin = Origin.find(texts_of(each.headers).get(_POSITION.get(each.channel, ""), ""))
    return -each.number if origin is None else origin.offset


def outcome_record(number: int, what: OrderOutcome, partition: Partition, heal_offset: int) -> OutputRecord:
    """The output record of an order's outcome, marked `possible-duplicate` if the order is below `heal_offset`."""
    mark = (_MARK,) if what.order_offset < heal_offset else ()
    key = None if what.order is None or what.order.unit is None else what.order.unit.encode()
    order_id = None if what.order is None else what.order.id
    headers = outcome_headers(order_id, what.result.value, partition, what.order_offset)
    return OutputRecord(number, Channel.ORDER_OUTCOMES, key, headers + mark, encode_outcome(what))


def output_record(number: int, what: Notification | DeadLetter | Fact, heal_offset: int) -> OutputRecord:
    """The output record of what a record caused, marked `possible-duplicate` if the origin of that is below `heal_offset`, or if
    it was requeued from a dead letter with this mark.
    """
    if isinstance(what, Notification):
        offset, prefix = what.origin[1], what.prefix
        headers = (*what.headers, _mark(prefix)) if offset < heal_offset or what.is_possible_duplicate else what.headers
        key = what.unit.encode() if what.key is UNSET else what.key
        if not prefix:
            return OutputRecord(number, _NOTIFICATIONS, key, headers, what.value, is_object=what.is_object)
        return OutputRecord(
            number, _NOTIFICATIONS, key, headers, what.value, offset=offset, prefix=prefix, timestamp=what.timestamp
        )
    if isinstance(what, Fact):
        mark = (_MARK,) if what.origin.offset < heal_offset or what.is_possible_duplicate else ()
        return OutputRecord(number, Channel.FACTS, what.key.encode(), what.headers + mark, what.value)
    record = what.record
    mark = (_MARK,) if record.origin.offset < heal_offset or REQUEUED_MARK in record.headers else ()
    return OutputRecord(number, Channel.DEAD_LETTERS, record.key, _dead_letter_headers(what) + mark, record.value)


def to_pending(each: OutputRecord) -> Pending:
    """Return the record as it is stored: the fields in the order of `_Stored`."""
    fields = (each.channel, each.key, each.headers, each.value)
    return Pending(each.number, _encode((*fields, each.offset, each.prefix, each.timestamp) if each.prefix else fields))


def from_pending(pending: Pending) -> OutputRecord:
    try:
        stored = _decode(pending.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        problem = f"its stored bytes are damaged ({error}); restore the storage from a backup"
        raise StorageRefused(f"pending output number {pending.number}", problem) from error
    fields = (stored.channel, stored.key, stored.headers, stored.value)
    return OutputRecord(pending.number, *fields, offset=stored.offset, prefix=stored.prefix, timestamp=stored.timestamp)


def renumbered(each: OutputRecord, number: int) -> OutputRecord:
    """The same record under a new number, marked: it is unknown whether it was published under its old number."""
    mark = _mark(each.prefix)
    headers = each.headers if mark in each.headers else (*each.headers, mark)
    return replace(each, number=number, headers=headers)


def _mark(prefix: str) -> tuple[str, bytes]:
    return (f"{prefix}{POSSIBLE_DUPLICATE}", MARKED) if prefix else _MARK


def _dead_letter_headers(dead_letter: DeadLetter) -> Headers:
    record = dead_letter.record
    ours = dead_letter_headers(
        dead_letter.reason, dead_letter.error, str(record.origin).encode(), dead_letter.dead_at, record.cut
    )
    return (*record.headers, *ours)
