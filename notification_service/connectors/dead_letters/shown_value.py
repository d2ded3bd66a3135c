"""The value of a record as a person reads it: JSON and XML indented, other text as it is, other bytes in hexadecimal.

All is bounded: of a long value only the beginning is shown.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from resequencer.printable import find_text

LONGEST = 256 * 1024
"""The most bytes of a value that are formatted, or shown as text."""

_HEX_BYTES = 4 * 1024
"""The most bytes that are shown in hexadecimal."""

_LINE = 16
_MAX_INDENT = 40
_XML = re.compile(r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>|<[^<>]*>|[^<]+|<", re.DOTALL)


class ShownValue(NamedTuple):
    """A value as text. `format` names how it is shown; `is_cut` if only its beginning is here."""

    format: str
    text: str
    is_cut: bool


class ShownBody(NamedTuple):
    """A value with a title and its size in bytes."""

    title: str
    text: str
    size_bytes: int
    is_cut: bool


def shown_body(title: str, body: bytes) -> ShownBody:
    value = shown_value(body)
    return ShownBody(title, value.text, len(body), value.is_cut)


def shown_value(value: bytes) -> ShownValue:
    """Return the value as a person reads it. What it holds is never interpreted: no entity of XML is resolved."""
    is_cut, beginning = len(value) > LONGEST, value[:LONGEST]
    if not is_cut:
        try:
            return ShownValue("JSON", msgspec.json.format(value, indent=2).decode(), is_cut)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
    text = _text_of(beginning, is_cut=is_cut)
    if text is None:
        return ShownValue("hexadecimal", "\n".join(_dumped(value[:_HEX_BYTES])), len(value) > _HEX_BYTES)
    if text.lstrip("\ufeff \t\r\n").startswith("<") and not is_cut:
        return ShownValue("XML", "\n".join(_indented(text)), is_cut)
    return ShownValue("text", text, is_cut)


def editable_text(value: bytes) -> str | None:
    """Return the text in which a person can correct this value in a form, None if a form would change its bytes."""
    return None if len(value) > LONGEST else find_text(value)


def _text_of(value: bytes, *, is_cut: bool) -> str | None:
    """Return the bytes as text; None if they are none. A character that was cut in two at the end is left out."""
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        if not is_cut or error.start < len(value) - 3:
            return None
        text = value[: error.start].decode()
    return None if any(ord(each) < ord(" ") and each not in "\t\r\n" for each in text) else text


def _indented(text: str) -> Iterator[str]:
    """Yield the lines of an XML text, each element indented. An element with text alone is one line; text is not changed."""
    depth, line = 0, ""
    for piece in _XML.findall(text):
        if not piece.startswith("<") or piece == "<":
            line += piece if line else piece.strip()
            continue
        is_closing = piece.startswith("</")
        depth -= is_closing
        if is_closing and line:
            yield line + piece
            line = ""
            continue
        if line.strip():
            yield line
        indent = "  " * min(max(depth, 0), _MAX_INDENT)
        is_opening = piece[1:2] not in ("/", "?", "!") and not piece.endswith("/>")
        depth += is_opening
        line = indent + piece if is_opening else ""
        if not is_opening:
            yield indent + piece
    if line.strip():
        yield line


def _dumped(value: bytes) -> Iterator[str]:
    """Yield lines of sixteen bytes: where they are, in hexadecimal, and what of them is ASCII."""
    for at in range(0, len(value), _LINE):
        part = value[at : at + _LINE]
        ascii_text = "".join(chr(each) if 0x20 <= each < 0x7F else "." for each in part)
        yield f"{at:08x}  {part.hex(' '):<{3 * _LINE - 1}}  {ascii_text}"
