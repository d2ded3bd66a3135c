"""Writes lines that are no envelopes, of every kind that must become a dead letter."""

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any, NamedTuple

import msgspec

from guardian.headers import SCHEMA_VERSION
from notification_service.connectors.line_format import Line, encode_line
from notification_service.payments.envelope import MAX_OBJECTS
from resequencer.dead_letter import DeadLetterReason
from resequencer.record import Headers

_NESTING = 10_000


Writers = Mapping[str, tuple[DeadLetterReason, Callable[[Random, str], bytes]]]
"""By kind the reason of its dead letter, and what writes a line of it, with its newline, for a unit."""


class Garbage(NamedTuple):
    """A whole line, the key that selects its partition, and the reason that its dead letter must have."""

    kind: str
    key: bytes
    line: bytes
    reason: DeadLetterReason


def draw_garbage(rng: Random, unit: str, writers: Writers | None = None) -> Garbage:
    """Return garbage of a random kind, under the given unit id, which must be unique."""
    writers = writers or _WRITERS
    return _write(rng.choice(tuple(writers)), rng, unit, writers)


def deal_garbage(rng: Random, unit: str, max_value_bytes: int | None = None, writers: Writers | None = None) -> Iterator[Garbage]:
    """Yield garbage without end, under ids that begin with `unit`. Every kind occurs once before any kind repeats.

    The kinds are those of `writers`, by default what is no envelope.

    One piece, and at most one because it is large, has a value of `max_value_bytes` plus one byte.
    """
    writers = writers or _WRITERS
    missing = dict.fromkeys((*writers, *([TOO_LARGE] if max_value_bytes else [])))
    number = 0
    while True:
        drawn = draw_garbage(rng, f"{unit}-{number}", writers)
        if missing and drawn.kind not in missing:
            kind = next(iter(missing))
            if kind == TOO_LARGE:
                drawn = _write_too_large(drawn.key.decode(), max_value_bytes or 0)
            else:
                drawn = _rewritten(drawn, kind, writers)
        missing.pop(drawn.kind, None)
        yield drawn
        number += 1


def _rewritten(drawn: Garbage, kind: str, writers: Writers) -> Garbage:
    """Return garbage of another kind, from a random generator of its own, so that later draws do not change."""
    unit = drawn.key.decode()
    rng = Random(f"{unit}/{kind}")  # noqa: S311  # A simulation, and it must repeat itself.
    return _write(kind, rng, unit, writers)


def _write(kind: str, rng: Random, unit: str, writers: Writers) -> Garbage:
    reason, write = writers[kind]
    return Garbage(kind, unit.encode(), write(rng, unit), reason)


def _write_too_large(unit: str, max_value_bytes: int) -> Garbage:
    """Return an envelope whose only fault is its size: one byte too many, or its minimum size if that is more."""
    empty = len(msgspec.json.encode(_envelope(unit, filling="")))
    value = msgspec.json.encode(_envelope(unit, filling="x" * (max_value_bytes + 1 - empty)))
    return Garbage(TOO_LARGE, unit.encode(), _line(unit, value), DeadLetterReason.TOO_LARGE)


def _no_record(rng: Random, unit: str) -> bytes:
    return rng.choice((f"{unit} is not JSON\n", f'["{unit}", 1, 2]\n', '{"key": "cut off in the mid\n')).encode()


def _no_json(_: Random, unit: str) -> bytes:
    return _line(unit, b"<Document>an XML message on the wrong topic</Document>")


def _cut_off(rng: Random, unit: str) -> bytes:
    value = msgspec.json.encode(_envelope(unit))
    return _line(unit, value[: rng.randint(1, len(value) - 1)])


def _broken_utf8(rng: Random, unit: str) -> bytes:
    return _line(unit, bytes((0xC3, 0x28, 0xFF, rng.randrange(0x80, 0xC0))) + rng.randbytes(12))


def _other_shape(rng: Random, unit: str) -> bytes:
    return _line(unit, msgspec.json.encode(rng.choice(([unit], 17, {"mdsObjects": "none"} | _envelope(unit, mdsObjects="none")))))


def _wrong_type(rng: Random, unit: str) -> bytes:
    return _line(unit, msgspec.json.encode(_envelope(unit, flow=rng.choice((17, ["PaymentInitiationFlow"], {})))))


def _deep(_: Random, unit: str) -> bytes:
    nested = b"[" * _NESTING + b"]" * _NESTING
    objects = [{"uniqueId": unit, "objectType": "DEEP", "object": msgspec.Raw(nested)}]
    return _line(unit, msgspec.json.encode(_envelope(unit, mdsObjects=objects)))


def _no_unit(_: Random, unit: str) -> bytes:
    return _line(unit, msgspec.json.encode(_envelope(unit, processingContext={"clientRequestId": unit})))


def _invalid_id(rng: Random, unit: str) -> bytes:
    invalid = rng.choice(("", unit + "x" * 256, f"{unit}\x07", f"{unit}\n"))
    return _line(unit, msgspec.json.encode(_envelope(unit, processingContext={"unitOfWorkId": invalid})))


def _no_sequence(_: Random, unit: str) -> bytes:
    envelope = _envelope(unit)
    del envelope["sequence"]
    return _line(unit, msgspec.json.encode(envelope))


def _invalid_sequence(rng: Random, unit: str) -> bytes:
    return _line(unit, msgspec.json.encode(_envelope(unit, sequence=rng.choice((0, -1, 2.5, 2**63)))))


def _other_schema(rng: Random, unit: str) -> bytes:
    version = rng.choice((b"0", b"3", b"99", b"two", b""))
    return _line(unit, msgspec.json.encode(_envelope(unit)), ((SCHEMA_VERSION, version),))


def _too_many_objects(rng: Random, unit: str) -> bytes:
    kind = rng.choice(("mdsObjects", "pdsObjects", "customObjects", "processObjects"))
    return _line(unit, msgspec.json.encode(_envelope(unit, **{kind: [{}] * (MAX_OBJECTS + 1)})))


def _envelope(unit: str, **fields: Any) -> dict[str, Any]:
    """Return a valid envelope without process objects, so that a strategy that accepts it publishes no notification."""
    return {
        "processingContext": {"unitOfWorkId": unit},
        "flow": "PaymentInitiationFlow",
        "sequence": 1,
        "createdAt": "2026-03-29T00:00:00.000Z",
    } | fields


def _line(unit: str, value: bytes, headers: Headers = ()) -> bytes:
    return encode_line(Line(value, unit.encode(), headers))


_WRITERS: Writers = {
    "no-record": (DeadLetterReason.UNDECODABLE, _no_record),
    "no-json": (DeadLetterReason.UNDECODABLE, _no_json),
    "cut-off": (DeadLetterReason.UNDECODABLE, _cut_off),
    "broken-utf8": (DeadLetterReason.UNDECODABLE, _broken_utf8),
    "other-shape": (DeadLetterReason.UNDECODABLE, _other_shape),
    "wrong-type": (DeadLetterReason.UNDECODABLE, _wrong_type),
    "deep": (DeadLetterReason.UNDECODABLE, _deep),
    "no-unit": (DeadLetterReason.NO_UNIT_OF_WORK, _no_unit),
    "invalid-id": (DeadLetterReason.INVALID_ID, _invalid_id),
    "no-sequence": (DeadLetterReason.NO_SEQUENCE, _no_sequence),
    "invalid-sequence": (DeadLetterReason.INVALID_SEQUENCE, _invalid_sequence),
    "other-schema": (DeadLetterReason.UNSUPPORTED_SCHEMA_VERSION, _other_schema),
    "too-many-objects": (DeadLetterReason.TOO_MANY_OBJECTS, _too_many_objects),
}

KINDS = tuple(_WRITERS)
"""The kinds of garbage, in the order in which they are drawn."""

TOO_LARGE = "too-large"
"""An additional kind, which is written once."""
