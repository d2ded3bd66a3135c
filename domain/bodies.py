"""What makes a raw JSON body readable later, when a handler asks for it, and how it is read then.

msgspec skips what it keeps raw: it sees malformed JSON there and unpaired surrogates, but not invalid UTF-8, numbers that
cannot be read, or a depth that only a deeper stack would notice. Such a body must not become a unit's payment data.
"""

import re
from array import array
from itertools import accumulate

import msgspec

MAX_DEPTH = 128
"""How many objects and arrays may lie inside each other, the envelope's own included. A pain.001 needs a dozen."""

read_body = msgspec.json.Decoder(float_hook=str).decode
"""Reads every body without a flaw. Numbers with a fraction or an exponent come as their literal text: amounts keep their
digits, and `1e400` is no error."""

_LONGEST_INTEGER = 4_300
_LONG_INTEGERS = re.compile(rb"(?<![0-9.eE+])(?<![eE]-)[0-9]{%d,}+(?![.eE])" % (_LONGEST_INTEGER + 1))
"""Such digits outside of a string are an integer, and no part of a number with a fraction or an exponent."""

_BLOCK = 2_000
_PORTION = 1 << 16
_DEPTH_STEPS = bytes.maketrans(b"{[}]", b"\x01\x01\xff\xff")
_NO_BRACKETS = bytes(each for each in range(256) if each not in b"{[}]")


def find_encoding_flaw(value: bytes) -> str | None:
    """Why these bytes are no text in UTF-8, None if they are."""
    if value.isascii():
        return None
    try:
        value.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"not UTF-8: byte {error.start} (0x{value[error.start]:02x}), {error.reason}"
    return None


def find_reading_flaw(value: bytes) -> str | None:
    """Why some part of this well-formed JSON could not be read later, None if all of it can. In linear time."""
    if value.count(b"{") + value.count(b"[") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
        return f"nested deeper than {MAX_DEPTH} levels"
    if len(value) > _LONGEST_INTEGER and _has_endless_number(value):
        return f"a number of more than {_LONGEST_INTEGER} digits"
    return None


def _depth(value: bytes) -> int:
    """The depth of well-formed JSON; brackets inside strings do not count. In portions, so that it takes little memory."""
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
    """Whether an integer is too long to be read. So many digits in a row cover an aligned block, which is quickly seen."""
    if not any(value[at : at + _BLOCK].isdigit() for at in range(0, len(value), _BLOCK)):
        return False
    seen, quotes = 0, 0
    for number in _LONG_INTEGERS.finditer(value):
        quotes += value[seen : number.start()].replace(b"\\\\", b"").replace(b'\\"', b"").count(b'"')
        seen = number.start()
        if quotes % 2 == 0:
            return True
    return False
