"""What leaves, as the records that leave and as the bytes that are pending until they have left."""

import msgspec

from connectors.port import Channel, OutputRecord
from domain.dead_letter import DeadLetter
from domain.headers import DEAD_LETTER_SOURCE_POSITION, MARKED, POSSIBLE_DUPLICATE, SOURCE_POSITION, dead_letter_headers
from domain.notification import Notification
from domain.record import Headers, Origin
from storage.port import Pending, StorageRefused

_MARK = (POSSIBLE_DUPLICATE, MARKED)
_POSITION = {Channel.NOTIFICATIONS: SOURCE_POSITION, Channel.DEAD_LETTERS: DEAD_LETTER_SOURCE_POSITION}
_RECORD_BYTES = 1_000


class _Stored(msgspec.Struct, frozen=True, array_like=True, gc=False):
    channel: Channel
    key: bytes | None
    headers: Headers
    value: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Stored).decode


def origin_of(what: Notification | DeadLetter) -> Origin:
    """Where the record lies that caused it."""
    return what.origin if isinstance(what, Notification) else what.record.origin


def offset_behind(each: OutputRecord) -> int:
    """The offset of the record that caused it; where it does not say so, a negative one that nothing else has."""
    offset = dict(each.headers).get(_POSITION[each.channel], b"").rpartition(b"@")[2]
    return int(offset) if offset.isdigit() else -each.number


def size_of(each: OutputRecord) -> int:
    """What it costs to send, in bytes: a record takes about as long as so many more of them."""
    return _RECORD_BYTES + len(each.value) + len(each.key or b"") + sum([len(data) for _, data in each.headers])


def output_record(number: int, what: Notification | DeadLetter, heal_offset: int) -> OutputRecord:
    """The record of a notification or a dead letter; marked where a storage that forgot may make it repeat."""
    mark = (_MARK,) if origin_of(what).offset < heal_offset else ()
    if isinstance(what, Notification):
        return OutputRecord(number, Channel.NOTIFICATIONS, what.unit.encode(), what.headers + mark, what.value)
    return OutputRecord(number, Channel.DEAD_LETTERS, what.record.key, _dead_letter_headers(what) + mark, what.record.value)


def to_pending(each: OutputRecord) -> Pending:
    return Pending(each.number, _encode(_Stored(each.channel, each.key, each.headers, each.value)))


def from_pending(pending: Pending) -> OutputRecord:
    try:
        stored = _decode(pending.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        problem = f"what is stored of it is damaged ({error}); restore the storage from a backup"
        raise StorageRefused(f"number {pending.number} of what is still to leave", problem) from error
    return OutputRecord(pending.number, stored.channel, stored.key, stored.headers, stored.value)


def renumbered(each: OutputRecord, number: int) -> OutputRecord:
    """The same under a new number, marked: whether it left under its old one is not known."""
    headers = each.headers if _MARK in each.headers else (*each.headers, _MARK)
    return OutputRecord(number, each.channel, each.key, headers, each.value)


def _dead_letter_headers(letter: DeadLetter) -> Headers:
    record = letter.record
    ours = dead_letter_headers(letter.reason, letter.error, str(record.origin).encode(), letter.dead_at, record.cut)
    return (*record.headers, *ours)
