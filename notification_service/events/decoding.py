"""Decodes bytes to a data envelope, or returns the reason why not (docs/contract.md, section 4; docs/design.md, section 3).

Every record passes here, so fast checks that settle most cases come first.

msgspec does not fully check values that it keeps raw. It detects malformed JSON and unpaired surrogates, but not invalid UTF-8,
numbers that cannot be read, or too deep nesting. A body with such a flaw must not become a unit's payment data.
"""

import re
from array import array
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate

import msgspec

from guardian.headers import SCHEMA_VERSION, as_cut
from notification_service.events.identifiers import MAX_LENGTH, find_id_flaw, hash_id, shown
from notification_service.events.wire import WireEnvelope, has_too_many_objects, read_envelope
from resequencer.dead_letter import DeadLetterReason
from resequencer.envelope import MAX_OBJECTS, DataEnvelope, ProcessObject, Refusal
from resequencer.errors import our_mistake
from resequencer.record import Record

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

_LONGEST_RAW_ID = 12 * MAX_LENGTH + 2
"""The longest id in JSON, in bytes: a character takes at most 12 (two UTF-16 escapes), the quotes take 2."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_pack = msgspec.msgpack.Encoder().encode
_read_text = msgspec.json.Decoder(str).decode
_read_number = msgspec.json.Decoder(int | float).decode


MAX_HEADERS = 1_000
"""The most headers of a record. A limit of bytes is not enough: an empty header has 2 bytes in a batch and 100 in memory."""


class DecodingSettings(msgspec.Struct, frozen=True):
    """`needs_sequence` comes from the strategy. Without it, a missing or invalid sequence becomes None and is not refused.

    A value of more than `max_value_bytes` is refused unread; so are key and headers that are larger together.
    """

    needs_sequence: bool
    max_value_bytes: int = 5 * 1024 * 1024


class EnvelopeDecoder:
    """Decodes records. Stateless; one serves every partition."""

    def __init__(self, settings: DecodingSettings) -> None:
        self._settings = settings

    def decode(self, record: Record) -> DataEnvelope | Refusal:
        """Return the envelope in a record, or the refusal. Raises nothing, whatever the bytes are.

        A byte order mark before the JSON is accepted, and a `sequence` of 3.0 is 3. Without process object and sequence there is
        no documented envelope id. Then the id is `flow#digest`, so that only an identical envelope is a duplicate. Bodies are
        compared as bytes: the same data in another notation has another digest.
        """
        try:
            self._screen(record)
            return self._envelope(record, _read(record.value.removeprefix(_BYTE_ORDER_MARK)))
        except _Refused as refused:
            return refused.refusal
        except msgspec.DecodeError as error:
            return _shapeless(str(error))
        except RecursionError:
            return _shapeless("nested too deep to be read")
        except Exception as error:  # noqa: BLE001 - A fault in our code costs the record, and not the worker at each start.
            return Refusal(DeadLetterReason.UNDECODABLE, our_mistake(error))

    def _screen(self, record: Record) -> None:
        """Refuse records that can be refused without reading the value."""
        record = as_cut(record)
        if record.defect is not None:
            raise _Refused(DeadLetterReason.UNDECODABLE, record.defect)
        length = len(record.value) if record.cut is None else record.cut.length
        if record.cut is not None or length > self._settings.max_value_bytes:
            limit = self._settings.max_value_bytes
            error = f"the value has {length} bytes, the limit is {limit}; send smaller envelopes"
            if length <= limit:
                error = f"the record was cut before it came here, its value had {length} bytes: the topic behind the bridge does "
                error += "not take it. Send smaller envelopes and headers, or raise the topic's max.message.bytes"
            raise _Refused(DeadLetterReason.TOO_LARGE, error)
        if len(record.headers) > MAX_HEADERS:
            error = f"the record has {len(record.headers)} headers, the limit is {MAX_HEADERS}; send fewer headers"
            raise _Refused(DeadLetterReason.TOO_LARGE, error)
        if (around := record.size - len(record.value)) > self._settings.max_value_bytes:
            error = f"key and headers have {around} bytes, the limit is {self._settings.max_value_bytes}; send smaller headers"
            raise _Refused(DeadLetterReason.TOO_LARGE, error)
        _check_schema_version(record)

    def _envelope(self, record: Record, wire: WireEnvelope) -> DataEnvelope:
        unit = _unit(wire)
        flow = _flow(wire)
        sequence = self._sequence(bytes(wire.sequence))
        mds = tuple([each.as_mds_object() for each in wire.mds_objects]) if wire.mds_objects else ()
        pds = tuple([each.as_pds_object() for each in wire.pds_objects]) if wire.pds_objects else ()
        custom = tuple([each.as_custom_object() for each in wire.custom_objects]) if wire.custom_objects else ()
        process = tuple([each.as_process_object() for each in wire.process_objects]) if wire.process_objects else ()
        # MessagePack frames every part, so that different envelopes have different bytes. Digests are stored: a test pins them.
        framed = _pack((flow, sequence, mds, pds, custom, [(each.object_type, each.body) for each in process]))
        digest = blake2b(framed, digest_size=8).digest()
        envelope_id = _find_documented_id(process) or f"{flow}#{digest.hex() if sequence is None else sequence}"
        entity = None if wire.processing_context is None else _find_entity(bytes(wire.processing_context.processing_entity))
        id_hash = hash_id(envelope_id)
        return DataEnvelope(unit, flow, sequence, envelope_id, id_hash, digest, record, mds, pds, custom, process, entity)

    def _sequence(self, raw: bytes) -> int | None:
        if raw.isdigit() and len(raw) < 16 and raw != b"0":
            return int(raw)
        sequence = _find_integer(raw)
        if sequence is None and self._settings.needs_sequence:
            if raw == b"null":
                raise _Refused(DeadLetterReason.NO_SEQUENCE, "sequence is missing; the configured strategy needs one")
            raise _Refused(
                DeadLetterReason.INVALID_SEQUENCE, f"sequence is {shown(raw.decode())}; send an integer from 1 to {MAX_SEQUENCE}"
            )
        return sequence


class _Refused(Exception):
    """Ends the decoding of a record. Never leaves this module."""

    def __init__(self, reason: DeadLetterReason, error: str) -> None:
        super().__init__(error)
        self.refusal = Refusal(reason, error)


def _shapeless(flaw: str) -> Refusal:
    return Refusal(DeadLetterReason.UNDECODABLE, f"not an envelope: {flaw}; correct the producer and send it again")


def _check_schema_version(record: Record) -> None:
    """Check the schema version. Of several such headers the last one counts, as in Kafka's own clients."""
    version = b"2"
    for name, value in record.headers:
        if name == SCHEMA_VERSION:
            version = value
    if version not in (b"1", b"2"):
        raise _Refused(DeadLetterReason.UNSUPPORTED_SCHEMA_VERSION, f"{SCHEMA_VERSION} is {shown(version)}; send 1 or 2")


def _read(value: bytes) -> WireEnvelope:
    flaw = find_encoding_flaw(value)
    if flaw is not None:
        raise msgspec.DecodeError(flaw)
    if has_too_many_objects(value):
        error = f"the envelope has more than {MAX_OBJECTS} objects of a kind; send them in several envelopes"
        raise _Refused(DeadLetterReason.TOO_MANY_OBJECTS, error)
    wire = read_envelope(value)
    flaw = find_reading_flaw(value)
    if flaw is not None:
        raise msgspec.DecodeError(flaw)
    return wire


def _unit(wire: WireEnvelope) -> str:
    context = wire.processing_context
    unit = None if context is None else context.unit_of_work_id
    if unit is None:
        raise _Refused(DeadLetterReason.NO_UNIT_OF_WORK, "processingContext.unitOfWorkId is missing; set it to the unit of work")
    return _checked_id("processingContext.unitOfWorkId", unit)


def _find_entity(raw: bytes) -> str | None:
    """Return the processing entity, None if it is not a text or not a valid id. A too long value is not decoded."""
    return _find_short_entity(raw) if len(raw) <= _LONGEST_RAW_ID else None


@lru_cache(256)
def _find_short_entity(raw: bytes) -> str | None:
    """Decode a processing entity. Cached, because there are few, and nearly every envelope has one."""
    try:
        entity = _read_text(raw)
    except msgspec.DecodeError:
        return None
    return None if find_id_flaw(entity) else entity


def _flow(wire: WireEnvelope) -> str:
    if wire.flow is None:
        raise msgspec.ValidationError("Object missing required field `flow`")
    return _checked_id("flow", wire.flow)


def _find_documented_id(process_objects: tuple[ProcessObject, ...]) -> str | None:
    unique_id = process_objects[0].unique_id if process_objects else None
    return None if unique_id is None else _checked_id("processObjects[0].uniqueId", unique_id)


def _checked_id(field: str, identifier: str) -> str:
    flaw = find_id_flaw(identifier)
    if flaw is not None:
        raise _Refused(DeadLetterReason.INVALID_ID, f"{field} {flaw}; send 1 to 256 printable characters")
    return identifier


def _find_integer(raw: bytes) -> int | None:
    """Return the sequence in raw JSON: a whole number in range in any notation (3, 3.0, 3e0); otherwise None."""
    try:
        number = _read_number(raw)
    except msgspec.DecodeError:
        return None
    return int(number) if 1 <= number <= MAX_SEQUENCE and number == int(number) else None
