"""What all formats share: a record is screened, read and turned into an event, or into the reason why it is none.

Every record passes here, so fast checks that settle most cases come first.

msgspec does not fully check values that it keeps raw. It detects malformed JSON and unpaired surrogates, but not invalid UTF-8,
numbers that cannot be read, or too deep nesting. A body with such a flaw must not become a unit's data.
"""

import re
from abc import ABC, abstractmethod
from array import array
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from itertools import accumulate
from math import floor
from typing import ClassVar, Generic, TypeVar

import msgspec

from guardian.headers import as_cut
from notification_service.events.identifiers import MAX_LENGTH, find_id_flaw, shown
from resequencer.clock import Instant
from resequencer.dead_letter import DeadLetterReason
from resequencer.errors import our_mistake
from resequencer.event import Event, Refusal
from resequencer.notification import short_digest
from resequencer.record import NO_VALUE, Record

MAX_DEPTH = 128
"""The deepest nesting of objects and arrays, including the envelope's own. A pain.001 needs about 12 levels."""

read_body = msgspec.json.Decoder(float_hook=str).decode
"""Decodes a body without flaws. Numbers with a fraction or an exponent become their literal text, so that amounts keep their
digits and `1e400` is not an error."""

_LONGEST_INTEGER = 4_300
_LONG_INTEGERS = re.compile(rb"(?<![0-9.eE+])(?<![eE]-)[0-9]{%d,}+(?![.eE])" % (_LONGEST_INTEGER + 1))
"""Matches the digits of an integer, outside strings. Digits of a number with a fraction or an exponent do not match."""

_BLOCK = 2_000
_PORTION = 1 << 16
_DEPTH_STEPS = bytes.maketrans(b"{[}]", b"\x01\x01\xff\xff")
_NO_BRACKETS = bytes(each for each in range(256) if each not in b"{[}]")


def find_encoding_flaw(value: bytes) -> str | None:
    """Return why the bytes are not UTF-8 text, None if they are."""
    if value.isascii():
        return None
    try:
        value.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"not UTF-8: byte {error.start} (0x{value[error.start]:02x}), {error.reason}"
    return None


def find_reading_flaw(value: bytes) -> str | None:
    """Return why a part of this well-formed JSON could not be read later, None if all of it can. Takes linear time."""
    if value.count(b"{") + value.count(b"[") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
        return f"nested deeper than {MAX_DEPTH} levels"
    if len(value) > _LONGEST_INTEGER and _has_endless_number(value):
        return f"a number of more than {_LONGEST_INTEGER} digits"
    return None


def _depth(value: bytes) -> int:
    """Return the depth of well-formed JSON, without brackets inside strings. Works in portions to save memory."""
    plain = value.replace(b"\\\\", b"").replace(b'\\"', b"")
    depth = deepest = 0
    is_inside = 0
    for at in range(0, len(plain), _PORTION):
        pieces = plain[at : at + _PORTION].split(b'"')
        steps = array("b", b"".join(pieces[is_inside::2]).translate(_DEPTH_STEPS, _NO_BRACKETS))
        deepest = max(deepest, *accumulate(steps, initial=depth))
        depth += sum(steps)
        is_inside ^= (len(pieces) - 1) & 1
    return deepest


def _has_endless_number(value: bytes) -> bool:
    """Whether an integer is too long to be read. Such an integer covers an aligned block of digits, which is a fast check."""
    if not any(value[at : at + _BLOCK].isdigit() for at in range(0, len(value), _BLOCK)):
        return False
    seen, quotes = 0, 0
    for number in _LONG_INTEGERS.finditer(value):
        quotes += value[seen : number.start()].replace(b"\\\\", b"").replace(b'\\"', b"").count(b'"')
        seen = number.start()
        if quotes % 2 == 0:
            return True
    return False


MAX_SEQUENCE = 2**53 - 1
"""The largest integer up to which every JSON reader keeps all integers exact (RFC 8259, section 6)."""

MAX_HEADERS = 1_000
"""The most headers of a record. A limit of bytes is not enough: an empty header has 2 bytes in a batch and 100 in memory."""

FLOW = "events"
"""The flow of all events if a format has no other."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_read_datetime = msgspec.json.Decoder(datetime).decode
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_INSTANT, _LAST_INSTANT = -62_135_596_800_000, 253_402_300_799_999
_SECONDS = slice(16, 19)
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_read_number = msgspec.json.Decoder(int | float).decode
_pack = msgspec.msgpack.Encoder().encode


class DecodingSettings(msgspec.Struct, frozen=True):
    """`needs_sequence` comes from the strategy. Without it, a missing or invalid sequence becomes None and is not refused.

    A value of more than `max_value_bytes` is refused unread; so are key and headers that are larger together. `first_sequence` is
    the lowest valid number: 0 or 1. With `needs_time` a record without a time is refused.
    """

    needs_sequence: bool
    max_value_bytes: int = 5 * 1024 * 1024
    first_sequence: int = 1
    needs_time: bool = False


class Refused(Exception):
    """Ends the decoding of a record. Never leaves a decoder."""

    def __init__(self, reason: DeadLetterReason, error: str) -> None:
        super().__init__(error)
        self.refusal = Refusal(reason, error)


_E = TypeVar("_E", bound=Event, covariant=True)


class RecordDecoder(ABC, Generic[_E]):
    """Decodes records of one format. Stateless; one serves every partition."""

    a_record: ClassVar[str]
    records: ClassVar[str]
    """What a record of this format is called in errors: `an envelope`, `envelopes`."""

    needs_value: ClassVar[bool] = False
    """Whether a record with a null value is refused."""

    def __init__(self, settings: DecodingSettings) -> None:
        self._settings = settings

    def decode(self, record: Record) -> _E | Refusal:
        """Return the event in a record, or the refusal. Raises nothing, whatever the bytes are."""
        try:
            self._screen(record)
            return self._event(record)
        except Refused as refused:
            return refused.refusal
        except msgspec.DecodeError as error:
            return self._shapeless(str(error))
        except RecursionError:
            return self._shapeless("nested too deep to be read")
        except Exception as error:  # noqa: BLE001 - A fault in our code costs the record, and not the worker at each start.
            return Refusal(DeadLetterReason.UNDECODABLE, our_mistake(error))

    @abstractmethod
    def _event(self, record: Record) -> _E:
        """Return the event in a record.

        Raises:
            Refused: The record is not valid.
            msgspec.DecodeError, RecursionError: The value has another shape.
        """

    def _screen(self, record: Record) -> None:
        """Refuse records that can be refused without reading the value."""
        record = as_cut(record)
        if record.defect is not None:
            raise Refused(DeadLetterReason.UNDECODABLE, record.defect)
        value = record.value
        if value is None:
            if self.needs_value:
                raise Refused(DeadLetterReason.UNDECODABLE, NO_VALUE)
            value = b""
        length = len(value) if record.cut is None else record.cut.length
        if record.cut is not None or length > self._settings.max_value_bytes:
            limit = self._settings.max_value_bytes
            error = f"the value has {length} bytes, the limit is {limit}; send smaller {self.records}"
            if length <= limit:
                error = f"the record was cut before it came here, its value had {length} bytes: the topic behind the bridge does "
                error += f"not take it. Send smaller {self.records} and headers, or raise the topic's max.message.bytes"
            raise Refused(DeadLetterReason.TOO_LARGE, error)
        if len(record.headers) > MAX_HEADERS:
            error = f"the record has {len(record.headers)} headers, the limit is {MAX_HEADERS}; send fewer headers"
            raise Refused(DeadLetterReason.TOO_LARGE, error)
        if (around := record.size - len(value)) > self._settings.max_value_bytes:
            error = f"key and headers have {around} bytes, the limit is {self._settings.max_value_bytes}; send smaller headers"
            raise Refused(DeadLetterReason.TOO_LARGE, error)

    def _sequence(self, raw: bytes, place: str | None = None) -> int | None:
        """Return the sequence from raw JSON: 3.0 is 3. `place` is where the mapping finds it.

        Raises:
            Refused: The strategy needs one, and there is none or it is not valid.
        """
        if raw.isdigit() and len(raw) < 16 and raw != b"0":
            return int(raw)
        lowest = self._settings.first_sequence
        sequence = _find_integer(raw, lowest)
        if sequence is None and self._settings.needs_sequence:
            raise _refused_sequence(raw, lowest, place)
        return sequence

    def _time(self, time: Instant | None, field: str) -> Instant | None:
        """Return the time.

        Raises:
            Refused: The strategy needs one, and there is none.
        """
        if time is None and self._settings.needs_time:
            error = f"{field} is missing or no time; send one as RFC 3339, such as 2026-03-28T23:33:55.941Z"
            raise Refused(DeadLetterReason.INVALID_TIME, error)
        return time

    def _shapeless(self, flaw: str) -> Refusal:
        return Refusal(DeadLetterReason.UNDECODABLE, f"not {self.a_record}: {flaw}; correct the producer and send it again")


def contents_digest(
    record: Record, flow: str, sequence: int | None, parts: tuple[str, ...], time: Instant | None, previous: str | None
) -> bytes:
    """Return the digest of all that an event says. Headers are read by the format alone: producers' retries may change others."""
    return blake2b(_pack((flow, sequence, parts, time, previous, record.key, record.value)), digest_size=8).digest()


def checked_id(field: str, identifier: str) -> str:
    """Return the id.

    Raises:
        Refused: It is not a valid id of a unit, a flow or an event.
    """
    flaw = find_id_flaw(identifier)
    if flaw is not None:
        raise Refused(DeadLetterReason.INVALID_ID, f"{field} {flaw}; send 1 to 256 printable characters")
    return identifier


def checked_text(field: str, text: str) -> str:
    """Return a text that is part of an id, of any length.

    Raises:
        Refused: It has control characters.
    """
    checked_id(field, text[:MAX_LENGTH])
    for at in range(MAX_LENGTH, len(text), MAX_LENGTH):
        checked_id(field, text[at : at + MAX_LENGTH])
    return text


def id_without_one(flow: str, sequence: int | None, digest: bytes) -> str:
    """Return the id of an event to which its producer gives none: `flow#sequence`, without a sequence `flow#digest`."""
    return short_id(f"{flow}#{digest.hex() if sequence is None else sequence}")


def short_id(text: str) -> str:
    """Return a text as an id: one that is too long by its digest."""
    return text if len(text) <= MAX_LENGTH else short_digest(text.encode())


def read_instant(text: str) -> Instant | None:
    """Return the instant in a text of RFC 3339, None if it is none. Fractions of a millisecond are cut off.

    A leap second is read as the second before it, because no instant of ours counts it.
    """
    if text[_SECONDS] == ":60":
        text = f"{text[: _SECONDS.start]}:59{text[_SECONDS.stop :]}"
    try:
        found = _read_datetime(msgspec.json.encode(text))
    except msgspec.DecodeError:
        return None
    return None if found.tzinfo is None else as_instant((found - _EPOCH) // timedelta(milliseconds=1))


def read_milliseconds(text: str) -> Instant | None:
    """Return the instant in a number of milliseconds since 1970, in any notation of numbers; None if it is none."""
    return as_instant(float(text)) if _NUMBER.fullmatch(text) else None


def as_instant(number: float) -> Instant | None:
    """Return the whole milliseconds, None outside the years 1 to 9999: no text could be made of such an instant."""
    return floor(number) if _FIRST_INSTANT <= number <= _LAST_INSTANT else None


def _refused_sequence(raw: bytes, lowest: int, place: str | None) -> Refused:
    """Return the refusal of a sequence from raw JSON; null is a missing one."""
    field = "sequence" if place is None else f"sequence ({place})"
    if raw == b"null":
        remedy = "the configured strategy needs one" if place is None else "send it, or correct events.mapped.sequence"
        return Refused(DeadLetterReason.NO_SEQUENCE, f"{field} is missing; {remedy}")
    text = raw.decode()
    value = shown(msgspec.json.decode(raw) if place is not None and text[:1] == '"' else text)
    remedy = f"send an integer from {lowest} to {MAX_SEQUENCE}"
    if place is not None and lowest and _find_integer(raw, 0) == 0:
        remedy += ", or set resequencer.first-sequence = 0"
    return Refused(DeadLetterReason.INVALID_SEQUENCE, f"{field} is {value}; {remedy}")


def _find_integer(raw: bytes, lowest: int) -> int | None:
    """Return the number in raw JSON: a whole number in range in any notation (3, 3.0, 3e0); otherwise None."""
    try:
        number = _read_number(raw)
    except msgspec.DecodeError:
        return None
    return int(number) if lowest <= number <= MAX_SEQUENCE and number == int(number) else None
