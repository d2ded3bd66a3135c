"""What leaves, as the records that leave and as the bytes that are pending until they have left."""

import msgspec

from connectors.port import Channel, OutputRecord
from domain.clock import instant_text
from domain.dead_letter import DeadLetter
from domain.notification import Notification
from domain.record import Headers, Origin
from storage.port import Pending, StorageRefused

POSSIBLE_DUPLICATE = ("possible-duplicate", b"true")
_POSITION = {Channel.NOTIFICATIONS: "source-position", Channel.DEAD_LETTERS: "dead-letter-source-position"}
_RECORD_BYTES = 1_000

_LONGEST_ERROR = 2_000
"""Foreign code may say as much as it likes, the payment's data included; some transports bound a header."""


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
    mark = (POSSIBLE_DUPLICATE,) if origin_of(what).offset < heal_offset else ()
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
    headers = each.headers if POSSIBLE_DUPLICATE in each.headers else (*each.headers, POSSIBLE_DUPLICATE)
    return OutputRecord(number, each.channel, each.key, headers, each.value)


def _dead_letter_headers(letter: DeadLetter) -> Headers:
    cut = letter.record.cut
    was = (
        (("dead-letter-value-length", str(cut.length).encode()), ("dead-letter-value-sha256", cut.sha256.encode())) if cut else ()
    )
    return (
        *letter.record.headers,
        ("dead-letter-reason", letter.reason.value.encode()),
        ("dead-letter-error", letter.error[:_LONGEST_ERROR].encode("utf-8", "replace")),
        ("dead-letter-source-position", str(letter.record.origin).encode()),
        ("dead-letter-at", instant_text(letter.dead_at).encode()),
        *was,
    )
