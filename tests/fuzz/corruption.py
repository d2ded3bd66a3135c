"""Meaningful changes to a line, as a producer with a bug might send it."""

import base64
import json
import re
from collections.abc import Callable
from random import Random

Corruption = Callable[[Random, bytes], bytes]
"""Turns a line into another; returns the same line if it lacks the part to change."""

_SCALAR = re.compile(rb'"(?:[^"\\]|\\.)*"(?!\s*:)|(?<![\w".])-?[0-9]+(?:\.[0-9]+)?')
_NAME = re.compile(rb'"([A-Za-z]+)"\s*:')
_SEQUENCE = re.compile(rb'"sequence"\s*:\s*[0-9]+')
_ID = re.compile(rb'"(unitOfWorkId|flow|uniqueId)"\s*:\s*"')
_ODD_VALUES = (
    *(b"null", b"true", b"17", b"-0.0", b"1e999", b'""', b"[]", b"{}", b"[{}]", b'{"value":[null]}'),
    *(b'"\\u0000"', b'"\\ud83d"'),
)
_ODD_SEQUENCES = (
    *(b"0", b"-1", b"1.0", b"1e0", b"2.5", b'"1"', b"null", b"9007199254740991", b"9007199254740992", b"1" * 400),
    b"[1]",
)
_OTHER_NAMES = (b'"x":', b'"":', b'"flow":', b'"object":', b'"key":', b'"value":')
_ODD_TEXTS = (b"\\u0000", b"\\n", b"\\u0085", b"x" * 300, b"x" * 20_000, "\u00fc".encode() * 256, b"\\ud800", b"\\u2028", b" ")


def another_type(rng: Random, line: bytes) -> bytes:
    """Change the type of a value."""
    return _replaced(rng, line, _SCALAR, lambda found: rng.choice(_ODD_VALUES))


def another_sequence(rng: Random, line: bytes) -> bytes:
    return _replaced(rng, line, _SEQUENCE, lambda found: b'"sequence":' + rng.choice(_ODD_SEQUENCES))


def odd_id(rng: Random, line: bytes) -> bytes:
    """Insert characters into an id that are not allowed, or too many characters."""
    return _replaced(rng, line, _ID, lambda found: found + rng.choice(_ODD_TEXTS))


def name_twice(rng: Random, line: bytes) -> bytes:
    """Repeat a name. The first value is another one; it does not count, but must have the right type."""
    return _replaced(rng, line, _NAME, lambda found: found + rng.choice(_ODD_VALUES) + b"," + found)


def another_name(rng: Random, line: bytes) -> bytes:
    return _replaced(rng, line, _NAME, lambda found: rng.choice(_OTHER_NAMES))


def wrapped(rng: Random, line: bytes) -> bytes:
    """Nest a value as deep as allowed, or deeper."""
    depth = rng.choice((1, 100, 128, 129, 5_000))
    return _replaced(rng, line, _SCALAR, lambda found: b"[" * depth + found + b"]" * depth)


def value_as_text(rng: Random, line: bytes) -> bytes:
    """Make the value a JSON string of itself, mostly the same envelope; sometimes with one character too many."""
    record = _read(line)
    if record is None:
        return line
    return json.dumps(record | {"value": json.dumps(record["value"]) + rng.choice(("", "", "\x00", "}"))}).encode()


def value_as_base64(rng: Random, line: bytes) -> bytes:
    """Encode the value's bytes in base64, with some that are not UTF-8, or use invalid base64."""
    record = _read(line)
    if record is None:
        return line
    value = bytearray(json.dumps(record.pop("value")).encode())
    value[rng.randrange(len(value))] = rng.choice((0x00, 0x80, 0xC3, 0xFF, 0x20))
    text = base64.b64encode(value).decode()
    corrupt = rng.choice((text, text, text[:-1], text + "=", text.replace("A", "!", 1)))
    return json.dumps(record | {"value-base64": corrupt}).encode()


def odd_headers(rng: Random, line: bytes) -> bytes:
    record = _read(line)
    versions = ("1", "2", "3", "", "two", " 2", "2\n", "\u0662")
    headers = rng.choice(
        (
            {"schema-version": rng.choice(versions)},
            [{"name": "schema-version", "value": "9"}, {"name": "schema-version", "value": rng.choice(versions)}],
            [{"name": "a", "value-base64": "/w=="}],
            {"schema-version": 2},
            [["schema-version", "2"]],
            {"requeued-from": "x", "dead-letter-reason": "undecodable", "notification-id": "\U0001f600" * 20},
        )
    )
    return line if record is None else json.dumps(record | {"headers": headers}).encode()


def odd_key(rng: Random, line: bytes) -> bytes:
    """Set a key that is not the unit, which is accepted."""
    record = _read(line)
    keys = ({"key": "another"}, {"key": None}, {"key": ""}, {"key-base64": "/w=="}, {"key": 5}, {"key": "k" * 5_000})
    return line if record is None else json.dumps(record | rng.choice(keys), ensure_ascii=rng.random() < 0.5).encode()


def repeated(rng: Random, line: bytes) -> bytes:
    """Send the record twice: a duplicate, if it is an envelope."""
    return line + b"\n" + line


def blank(rng: Random, line: bytes) -> bytes:
    """Make the record empty, or nearly so."""
    return rng.choice((b"", b"\r", b" ", b"\x00", b"\xef\xbb\xbf", line + b"\r"))


def _replaced(rng: Random, line: bytes, pattern: re.Pattern[bytes], change: Callable[[bytes], bytes]) -> bytes:
    """Replace one match of the pattern."""
    found = pattern.search(line, rng.randint(0, len(line))) or pattern.search(line)
    return line if found is None else line[: found.start()] + change(found[0]) + line[found.end() :]


def _read(line: bytes) -> dict[str, object] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and "value" in record else None


CORRUPTIONS: tuple[Corruption, ...] = (
    *(another_type, another_type, another_sequence, odd_id, name_twice, another_name, wrapped, value_as_text, value_as_base64),
    *(odd_headers, odd_key, repeated, blank),
)
