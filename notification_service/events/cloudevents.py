"""CloudEvents 1.0 as events (https://github.com/cloudevents/spec/tree/v1.0.2): binary mode, and structured mode in JSON.

In binary mode each attribute is a header, and the value is the data. The names of the headers begin with `ce_` (the binding for
Kafka; files have the same), `ce-` (HTTP), `cloudEvents_` or `cloudEvents:` (AMQP, JMS), or with nothing (MQTT 5). A record
without such headers is read as JSON with all attributes and the data.
"""

import binascii
import re
from base64 import b64decode
from urllib.parse import unquote_to_bytes

import msgspec

from notification_service.events.format import (
    BYTE_ORDER_MARK,
    RecordDecoder,
    Refused,
    checked_id,
    checked_text,
    contents_digest,
    find_encoding_flaw,
    find_reading_flaw,
    read_instant,
    short_id,
)
from notification_service.events.identifiers import hash_id, shown
from resequencer.dead_letter import DeadLetterReason
from resequencer.event import Event
from resequencer.notification import short_digest
from resequencer.record import NO_VALUE, Headers, Record

_VERSION = "1.0"
_HTTP = "ce-"
"""The names of headers of HTTP have no case."""
_PREFIXES = ("ce_", _HTTP, "cloudEvents_", "cloudEvents:", "")
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)
_CONTENT_TYPE = "content-type"
_STRUCTURED, _BATCH = "application/cloudevents", "application/cloudevents-batch"
_REQUIRED = ("specversion", "id", "source", "type")
_TEXTS = frozenset((*_REQUIRED, "subject", "time", "datacontenttype", "dataschema"))
"""The specification's own attributes: texts also in JSON. Extensions may be numbers and booleans there."""
_DATA = ("data", "data_base64")
_PREVIOUS = "previousid"
"""An extension of ours: the `id` of the event before this one, of the same source."""

_ATTRIBUTE_BYTES = 150
"""Memory of an attribute beside its text: two strings and their place in a table."""

_read_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_read_scalar = msgspec.json.Decoder(str | bool | int | None).decode


class CloudEvent(Event, frozen=True, gc=False):
    """A CloudEvent. `attributes` are its context attributes by name, each as the text that the specification gives it.

    `unit` is the attribute `partitionkey`, else `subject`; `flow` is `source`; `parts` is `type`. `event_id` is a digest of
    `source` and `id`, which together identify an event; `previous` is that of `source` and the extension `previousid`. `data` is
    None if there is none; in structured mode it is JSON, or what was encoded in base64.
    """

    attributes: dict[str, str] = msgspec.field(default_factory=dict)
    data: bytes | None = None


class CloudEventDecoder(RecordDecoder[CloudEvent]):
    """Decodes records of CloudEvents."""

    a_record, records = "a CloudEvent", "events"

    def _event(self, record: Record) -> CloudEvent:
        data: bytes | None = record.value
        attributes = _read_headers(record)
        if attributes is None:
            if record.value is None:
                raise Refused(DeadLetterReason.UNDECODABLE, NO_VALUE)
            attributes, data = _read_structured(record.value)
        _check(attributes)
        source, kind = attributes["source"], attributes["type"]
        flow = short_id(checked_text("source", source))
        sequence = self._sequence(_number(attributes.get("sequence")))
        time = self._time(read_instant(attributes["time"]) if "time" in attributes else None, "time")
        parts = (checked_id("type", kind),)
        event_id = _event_id(source, checked_text("id", attributes["id"]))
        before = attributes.get(_PREVIOUS)
        previous = _event_id(source, checked_text(_PREVIOUS, before)) if before else None
        digest = contents_digest(record, flow, sequence, parts, time, previous)
        weight = _ATTRIBUTE_BYTES * len(attributes)
        return CloudEvent(
            _unit(attributes), flow, sequence, event_id, hash_id(event_id), digest, record, parts, weight, time=time,
            previous=previous, attributes=attributes, data=data,
        )  # fmt: skip


def _read_headers(record: Record) -> dict[str, str] | None:
    """Return the attributes in the headers, None in structured mode. Of several headers with one name the last one counts.

    Raises:
        Refused: The record holds several events, or is in another format than JSON, or a header is not UTF-8.
    """
    headers = tuple([(name.lower() if name[:3].lower() == _HTTP else name, value) for name, value in record.headers])
    names = {name for name, _ in headers}
    content_type: Headers = ()
    for name, value in record.headers:
        if name.lower() == _CONTENT_TYPE:
            _refuse_other_formats(value)
            content_type = (("datacontenttype", value),)
            if value.partition(b";")[0].strip().lower() == f"{_STRUCTURED}+json".encode():
                return None
    for prefix in _PREFIXES:
        if f"{prefix}specversion" in names:
            return _of_headers(headers, prefix) | _of_headers(content_type, "")
    return None


def _refuse_other_formats(content_type: bytes) -> None:
    media = content_type.partition(b";")[0].strip().lower().decode(errors="replace")
    if media.startswith(_BATCH):
        raise Refused(DeadLetterReason.UNDECODABLE, "a batch of CloudEvents; send each event as a record of its own")
    if media.startswith(_STRUCTURED) and media != f"{_STRUCTURED}+json":
        error = f"content-type is {shown(media)}; send {_STRUCTURED}+json, or the attributes as headers (binary mode)"
        raise Refused(DeadLetterReason.UNDECODABLE, error)


def _of_headers(headers: Headers, prefix: str) -> dict[str, str]:
    attributes: dict[str, str] = {}
    for name, value in headers:
        if name.startswith(prefix):
            try:
                attributes[name[len(prefix) :]] = (_unescaped(value) if prefix == _HTTP else value).decode()
            except UnicodeDecodeError as error:
                if prefix:
                    raise Refused(DeadLetterReason.UNDECODABLE, f"header {shown(name)} is not UTF-8; send text") from error
    return attributes


def _unescaped(value: bytes) -> bytes:
    """Return what a header of HTTP means (its binding, 3.1.3.2): quoted texts lose their quotes, then `%20` is a space."""
    if len(value) > 1 and value[:1] == value[-1:] == b'"':
        value = _ESCAPED.sub(rb"\1", value[1:-1])
    return unquote_to_bytes(value)


def _read_structured(value: bytes) -> tuple[dict[str, str], bytes | None]:
    """Return the attributes and the data of an event in JSON.

    Raises:
        Refused, msgspec.DecodeError, RecursionError: It is none.
    """
    value = value.removeprefix(BYTE_ORDER_MARK)
    if (flaw := find_encoding_flaw(value)) is not None:
        raise msgspec.DecodeError(flaw)
    members = _read_members(value)
    if (flaw := find_reading_flaw(value)) is not None:
        raise msgspec.DecodeError(flaw)
    attributes: dict[str, str] = {}
    for name, raw in members.items():
        if name not in _DATA and (text := _attribute(name, bytes(raw))) is not None:
            attributes[name] = text
    data, encoded = (bytes(members[name]) if name in members else b"null" for name in _DATA)
    if encoded == b"null":
        return attributes, None if data == b"null" else data
    if data != b"null":
        raise msgspec.DecodeError("it has data and data_base64")
    try:
        return attributes, b64decode(msgspec.json.decode(encoded, type=str), validate=True)
    except (binascii.Error, ValueError) as error:
        raise msgspec.DecodeError(f"data_base64 is not base64: {error}") from error


def _attribute(name: str, raw: bytes) -> str | None:
    """Return an attribute's text from raw JSON; None if it is null, which is the same as absent."""
    try:
        found = _read_scalar(raw)
    except msgspec.DecodeError as error:
        raise msgspec.DecodeError(f"attribute {shown(name)} is neither a text, nor a whole number, nor a boolean") from error
    if name in _TEXTS and not isinstance(found, str | None):
        raise msgspec.DecodeError(f"attribute {shown(name)} is no text")
    if isinstance(found, bool):
        return "true" if found else "false"
    return None if found is None else str(found)


def _check(attributes: dict[str, str]) -> None:
    missing = [name for name in _REQUIRED if not attributes.get(name)]
    if missing and "specversion" not in missing:
        error = "is missing; give each event one" if len(missing) == 1 else "are missing; give each event all of them"
        raise Refused(DeadLetterReason.UNDECODABLE, f"not a CloudEvent: {', '.join(missing)} {error}")
    if missing:
        where = "as headers ce_…, or in JSON"
        raise Refused(DeadLetterReason.UNDECODABLE, f"not a CloudEvent: {', '.join(missing)} is missing; send it {where}")
    if attributes["specversion"] != _VERSION:
        error = f"specversion is {shown(attributes['specversion'])}; send {_VERSION}"
        raise Refused(DeadLetterReason.UNSUPPORTED_SCHEMA_VERSION, error)


def _unit(attributes: dict[str, str]) -> str:
    for name in ("partitionkey", "subject"):
        if attributes.get(name):
            return checked_id(name, attributes[name])
    raise Refused(DeadLetterReason.NO_UNIT_OF_WORK, "partitionkey and subject are missing; set one to the unit of work")


def _event_id(source: str, identifier: str) -> str:
    """Return the id of the event that this source gave this id."""
    return short_digest(f"{source}\0{identifier}".encode())


def _number(text: str | None) -> bytes:
    """Return the text of a sequence as JSON: a number if it has digits alone, else a text."""
    if text is None:
        return b"null"
    if text.isascii() and text.isdigit():
        return (text.lstrip("0") or "0").encode()
    return msgspec.json.encode(text)
