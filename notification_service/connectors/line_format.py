"""Encodes and decodes one record as one line of a file (docs/contract.md, section 10).

    {"key": "uow-1", "headers": {"schema-version": "2"}, "value": {…}}

A `value` that is a JSON string stands for the string's bytes; any other JSON value stands for its own text as bytes.
`value-base64` holds bytes that are not UTF-8, and is null for a record whose value is null, as Kafka's may be; `key-base64` holds
a key that is not UTF-8. If a header's name repeats, or a header's
value is not UTF-8, the headers are an array: `[{"name": "a", "value": "1"}, {"name": "a", "value-base64": "/w=="}]`. Other fields
are ignored, and so is a byte order mark at the beginning of a line.
"""

from zlib import crc32

import msgspec
from msgspec import UNSET, Raw, UnsetType

from resequencer.record import Headers


class Line(msgspec.Struct, frozen=True, gc=False):
    """The content of a line."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()

    @property
    def content(self) -> bytes:
        """The bytes of the value, none if it is null."""
        return self.value or b""


class Defect(msgspec.Struct, frozen=True):
    """The reason why a line is no record."""

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
    value_base64: bytes | UnsetType | None = msgspec.field(default=UNSET, name="value-base64")


class _NumberedWrapper(_Wrapper, omit_defaults=True, gc=False):
    number: str | None = None


_DECODER = msgspec.json.Decoder(_Wrapper)
_STRING = msgspec.json.Decoder(str)
_ONE_VALUE = msgspec.json.Decoder(tuple[Raw])
_ENCODER = msgspec.json.Encoder()

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""An editor writes it at the beginning of a file, and `cat` leaves it at the beginning of any line."""

_LONG_ESCAPES = bytes(byte for byte in range(0x20) if byte not in b"\b\t\n\f\r")
"""The characters that JSON encodes as six bytes each."""


def is_blank(line: bytes) -> bool:
    """Return whether a line without its newline is no record because nothing is in it."""
    return line[:1] != b"{" and not line.removeprefix(_BYTE_ORDER_MARK).strip(b" \t\r")


def decode_line(line: bytes) -> Line | Defect:
    """Decode a line without its newline. Never raises, whatever the bytes."""
    try:
        if not line.isascii():
            # msgspec does not check UTF-8 inside values that it leaves raw.
            line.decode()
            line = line.removeprefix(_BYTE_ORDER_MARK)
        wrapper = _DECODER.decode(line)
        return Line(_value_of(wrapper), _key_of(wrapper), _headers_of(wrapper.headers))
    except UnicodeDecodeError as error:
        return Defect(f"not UTF-8 (byte {error.start})")
    except RecursionError:
        return Defect("nested too deep")
    except msgspec.DecodeError as error:
        return Defect(str(error))


def encode_line(line: Line, *, number: str | None = None, verbatim: bool = False, is_object: bool = False) -> bytes:
    """Return the line with its newline; `decode_line` returns the same bytes of key, headers and value.

    A value that is one JSON object on one line is embedded unchanged. With `verbatim` even such a value becomes a string or
    base64, so that every JSON reader returns its exact bytes. `number` identifies an output line. With `is_object` the caller
    knows that the value is one JSON object on one line, and it is not looked at.
    """
    value = line.value
    if is_object and value is not None and (encoded := _find_short(line, value, number)) is not None:
        return encoded
    wrapper = _NumberedWrapper(headers=_wrap_headers(line.headers), number=number)
    if line.key is not None:
        wrapper.key = _find_text(line.key)
        wrapper.key_base64 = line.key if wrapper.key is None else None
    if value is None:
        wrapper.value_base64 = None
    elif is_object or (not verbatim and _is_object_on_one_line(value)):
        wrapper.value = Raw(value)
    elif (text := _find_text(value)) is not None:
        wrapper.value = Raw(_ENCODER.encode(text))
    else:
        wrapper.value_base64 = value
    return _ENCODER.encode(wrapper) + b"\n"


def _find_short(line: Line, value: bytes, number: str | None) -> bytes | None:
    """Return the line of an object if neither key nor headers need base64 or an array, as nearly none does; None if they may.

    A character that JSON encodes as six bytes is looked for in the whole line at once.
    """
    try:
        key = None if line.key is None else line.key.decode()
        headers = {name: value.decode() for name, value in line.headers}
    except UnicodeDecodeError:
        return None
    wrapper = _NumberedWrapper(key=key, headers=headers or None, value=Raw(value), number=number)
    encoded = _ENCODER.encode(wrapper)
    return encoded + b"\n" if len(headers) == len(line.headers) and encoded.find(b"\\u00") == -1 else None


def partition_of(key: bytes, count: int) -> int:
    """Return the partition, from 0, of a key among `count`: its CRC-32 modulo `count`, the same on every machine."""
    return crc32(key) % count


def _value_of(wrapper: _Wrapper) -> bytes | None:
    raw, binary = wrapper.value, wrapper.value_base64
    if not isinstance(binary, UnsetType):
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
    texts = {name: text for name, value in headers if (text := _find_text(value)) is not None}
    if len(texts) == len(headers):
        return texts
    return [_wrap_header(name, value) for name, value in headers]


def _wrap_header(name: str, value: bytes) -> _Header:
    text = _find_text(value)
    return _Header(name, value_base64=value) if text is None else _Header(name, value=text)


def _find_text(value: bytes) -> str | None:
    """Return the bytes as a string; None if they are not UTF-8, or if escapes would make the line much longer."""
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
        # As the only element of an array the value is nested as deep as in its line, and cannot be followed by anything.
        _ONE_VALUE.decode(b"[%b]" % value)
        return value.isascii() or bool(value.decode())
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
