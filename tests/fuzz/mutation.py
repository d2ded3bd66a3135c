"""Blind changes to bytes: flip, cut, repeat, move, splice, and insert of values that often break parsers."""

import re
from collections.abc import Callable, Sequence
from random import Random

TOKENS: tuple[bytes, ...] = (
    *(b"null", b"true", b"{}", b"[]", b'""', b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"\n", b"\r", b" ", b"\t"),
    *(b"0", b"-1", b"-0", b"1e400", b"1E-400", b"2.5", b"9007199254740991", b"9007199254740992", b"18446744073709551616"),
    *(b"NaN", b"Infinity", b"\\u0000", b"\\ud800", b"\\udc00\\ud800", b"\\u00e9", b"\\x", b"\x00", b"\x7f", b"\xc2\x85"),
    *(
        b"\xff",
        b"\xc0\x80",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xe2\x80\xa8",
        b"\xef\xbb\xbf",
        b"\xf0\x9f\x98\x80",
        b"\xe2\x82",
    ),
)
"""Values that often break parsers."""

_DIGITS = re.compile(rb"[0-9]+")
_Change = Callable[[Random, bytes, Sequence[bytes], Sequence[bytes]], bytes]


def mutated(rng: Random, data: bytes, others: Sequence[bytes], tokens: Sequence[bytes] = TOKENS, most: int = 4) -> bytes:
    """Return `data` after one to `most` changes; `others` are inputs to splice it with."""
    for _ in range(rng.randint(1, most)):
        data = rng.choice(_CHANGES)(rng, data, others, tokens)
    return data


def _flip_bit(rng: Random, data: bytes, others: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
    at = rng.randrange(len(data) or 1)
    return data[:at] + bytes(each ^ 1 << rng.randrange(8) for each in data[at : at + 1]) + data[at + 1 :]


def _replace_byte(rng: Random, data: bytes, others: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
    at = rng.randrange(len(data) or 1)
    return data[:at] + rng.randbytes(1) + data[at + 1 :]


def _cut_off(rng: Random, data: bytes, others: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
    return data[: rng.randint(0, len(data))]


def _cut_out(rng: Random, data: bytes, others: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
    begin, end = _span(rng, data)
    return data[:begin] + data[end:]


def _double(rng: Random, data: bytes, others: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
    begin, end = _span(rng, data)
    return data[:end] + data[begin:]


def _move(rng: Random, data: bytes, others: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
    begin, end = _span(rng, data)
    rest = data[:begin] + data[end:]
    at = rng.randint(0, len(rest))
    return rest[:at] + data[begin:end] + rest[at:]


def _splice(rng: Random, data: bytes, others: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
    """Join the beginning of this input and the end of another."""
    other = rng.choice(others)
    return data[: rng.randint(0, len(data))] + other[rng.randint(0, len(other)) :]


def _put_in(rng: Random, data: bytes, others: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
    at = rng.randint(0, len(data))
    return data[:at] + rng.choice(tokens) + data[at:]


def _put_in_place(rng: Random, data: bytes, others: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
    begin, end = _span(rng, data)
    return data[:begin] + rng.choice(tokens) + data[end:]


def _put_in_place_of_digits(rng: Random, data: bytes, others: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
    """Replace a number by another."""
    found = _DIGITS.search(data, rng.randint(0, len(data))) or _DIGITS.search(data)
    if found is None:
        return data
    number = rng.choice((b"0", b"-1", b"1e9", b"007", b"%d" % rng.getrandbits(70), b"9" * rng.choice((17, 400, 4_301))))
    return data[: found.start()] + number + data[found.end() :]


def _nest(rng: Random, data: bytes, others: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
    begin, end = _span(rng, data)
    depth = rng.choice((1, 3, 130, 2_000))
    opened, closed = rng.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"{", b"}"), (b"(", b")")))
    return data[:begin] + opened * depth + data[begin:end] + closed * depth + data[end:]


def _span(rng: Random, data: bytes) -> tuple[int, int]:
    """Choose a span, mostly a short one."""
    begin = rng.randint(0, len(data))
    return begin, min(len(data), begin + rng.choice((1, 2, 8, 64, len(data))))


_CHANGES: tuple[_Change, ...] = (
    *(_flip_bit, _replace_byte, _cut_off, _cut_out, _double, _move, _splice, _put_in, _put_in, _put_in_place, _put_in_place),
    *(_put_in_place_of_digits, _nest),
)
