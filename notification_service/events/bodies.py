"""Checks that a raw JSON body can be read later, when a handler needs it, and the decoder for it.

msgspec does not fully check values that it keeps raw. It detects malformed JSON and unpaired surrogates, but not invalid UTF-8,
numbers that cannot be read, or too deep nesting. A body with such a flaw must not become a unit's payment data.
"""

import re
from array import array
from itertools import accumulate

import msgspec

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
