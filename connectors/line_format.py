"""One record as one line of a file (docs/contract.md, section 10), both ways.

    {"key": "uow-1", "headers": {"schema-version": "2"}, "value": {…}}

A value that is a string stands for those very bytes, `value-base64` for bytes that are not UTF-8, any other JSON for its
own bytes as they stand. `key-base64` is a key that is not UTF-8. Headers of which a name repeats or a value is not UTF-8 are an
array instead: `[{"name": "a", "value": "1"}, {"name": "a", "value-base64": "/w=="}]`. Other fields are ignored.
"""

from zlib import crc32

import msgspec
from msgspec import UNSET, Raw, UnsetType

from domain.record import Headers


class Line(msgspec.Struct, frozen=True, gc=False):
    """What a line says."""

    value: bytes
    key: bytes | None = None
    headers: Headers = ()


class Defect(msgspec.Struct, frozen=True):
    """Why a line is no record."""

    problem: str


class _Header(msgspec.Struct, omit_defaults=True, gc=False):
    name: str
    value: str | UnsetType = UNSET
    value_base64: bytes | UnsetType = msgspec.field(default=UNSET, name="value-base64")


class _Wrapper(msgspec.Struct, omit_defaults=True, gc=False):
    key: str | None = None
    key_base64: bytes | None = msgspec.field(default=None, name="key-base64")
    headers: dict[str, str] | list[_Header] | None = None
    value: Raw | UnsetType = UNSET
    value_base64: bytes | UnsetType = msgspec.field(default=UNSET, name="value-base64")


class _NumberedWrapper(_Wrapper, omit_defaults=True, gc=False):
    number: str | None = None


_DECODER = msgspec.json.Decoder(_Wrapper)
_STRING = msgspec.json.Decoder(str)
_ONE_VALUE = msgspec.json.Decoder(tuple[Raw])
_ENCODER = msgspec.json.Encoder()

_LONG_ESCAPES = bytes(byte for byte in range(0x20) if byte not in b"\b\t\n\f\r")
"""The characters that JSON writes in six bytes each."""


def decode_line(line: bytes) -> Line | Defect:
    """What a line without its newline says. Never raises, whatever the bytes."""
    try:
        if not line.isascii():
            # msgspec does not look into the strings of what it leaves raw.
            line.decode()
        wrapper = _DECODER.decode(line)
        return Line(_value_of(wrapper), _key_of(wrapper), _headers_of(wrapper.headers))
    except UnicodeDecodeError as error:
        return Defect(f"not UTF-8 (byte {error.start})")
    except RecursionError:
        return Defect("nested too deep")
    except msgspec.DecodeError as error:
        return Defect(str(error))


def encode_line(line: Line, *, number: str | None = None, verbatim: bool = False) -> bytes:
    """The line with its newline; `decode_line` gives back the same bytes of key, headers and value.

    A value that is one JSON object on one line is embedded as it stands; with `verbatim` it is a string or base64 all the
    same, so that every JSON reader gives back its exact bytes. `number` is what an output line is known by.
    """
    wrapper = _NumberedWrapper(headers=_wrap_headers(line.headers), number=number)
    if line.key is not None:
        wrapper.key = _find_text(line.key)
        wrapper.key_base64 = line.key if wrapper.key is None else None
    if not verbatim and _is_object_on_one_line(line.value):
        wrapper.value = Raw(line.value)
    elif (text := _find_text(line.value)) is not None:
        wrapper.value = Raw(_ENCODER.encode(text))
    else:
        wrapper.value_base64 = line.value
    return _ENCODER.encode(wrapper) + b"\n"


def partition_of(key: bytes, count: int) -> int:
    """The partition, from 0, of `count` that a key's records go to: its CRC-32 modulo `count`, the same on every machine."""
    return crc32(key) % count


def _value_of(wrapper: _Wrapper) -> bytes:
    raw, binary = wrapper.value, wrapper.value_base64
    if isinstance(binary, bytes):
        if raw is not UNSET:
            raise msgspec.ValidationError("Object has both `value` and `value-base64`")
        return binary
    if not isinstance(raw, Raw):
        raise msgspec.ValidationError("Object missing required field `value`")
    value = bytes(raw)
    return _STRING.decode(value).encode() if value.startswith(b'"') else value


def _key_of(wrapper: _Wrapper) -> bytes | None:
    if wrapper.key is None:
        return wrapper.key_base64
    if wrapper.key_base64 is not None:
        raise msgspec.ValidationError("Object has both `key` and `key-base64`")
    return wrapper.key.encode()


def _headers_of(headers: dict[str, str] | list[_Header] | None) -> Headers:
    if isinstance(headers, dict):
        return tuple([(name, value.encode()) for name, value in headers.items()])
    return tuple([(each.name, _header_value(each)) for each in headers or ()])


def _header_value(header: _Header) -> bytes:
    if isinstance(header.value, str) and header.value_base64 is UNSET:
        return header.value.encode()
    if isinstance(header.value_base64, bytes) and header.value is UNSET:
        return header.value_base64
    raise msgspec.ValidationError("Header needs either `value` or `value-base64` - at `$.headers[...]`")


def _wrap_headers(headers: Headers) -> dict[str, str] | list[_Header] | None:
    if not headers:
        return None
    texts = _short_texts(headers) or {name: text for name, value in headers if (text := _find_text(value)) is not None}
    if len(texts) == len(headers):
        return texts
    return [_wrap_header(name, value) for name, value in headers]


def _short_texts(headers: Headers) -> dict[str, str] | None:
    """The values as strings if none of them has a character that would make it longer, as is the rule."""
    together = b"".join([value for _, value in headers])
    if len(together.translate(None, _LONG_ESCAPES)) < len(together):
        return None
    try:
        return {name: value.decode() for name, value in headers}
    except UnicodeDecodeError:
        return None


def _wrap_header(name: str, value: bytes) -> _Header:
    text = _find_text(value)
    return _Header(name, value_base64=value) if text is None else _Header(name, value=text)


def _find_text(value: bytes) -> str | None:
    """The bytes as a string, unless they are not UTF-8 or full of characters that would make the line six times as long."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    if text.isprintable():
        return text
    return None if 5 * (len(value) - len(value.translate(None, _LONG_ESCAPES))) > len(value) else text


def _is_object_on_one_line(value: bytes) -> bool:
    if not (value.startswith(b"{") and value.endswith(b"}")) or value.find(b"\n") >= 0:
        return False
    try:
        # As one element of an array it is nested as deep as in its line, and nothing can hide behind it.
        _ONE_VALUE.decode(b"[%b]" % value)
        return value.isascii() or bool(value.decode())
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
