"""Converts between messages of AMQP 1.0 and records. Pure.

An application property is a header. Names of JMS properties are Java identifiers, so a hyphen of our headers is an underscore
there: `notification-id` is `notification_id`. The correlation id is the key. Text is the body if the value is UTF-8, else bytes.
"""

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, NamedTuple
from uuid import UUID

from guardian import headers as names
from guardian.headers import texts_of
from notification_service.connectors.jms.arriving_message import Beginning
from notification_service.connectors.kafka.core.records import to_record
from resequencer.record import Headers, Origin, Record

DIGEST_BYTES = 15
"""The length of a digest: 20 characters in base64, without padding."""

_OURS = {each.replace("-", "_"): each for name, each in vars(names).items() if name.isupper() and isinstance(each, str)}
_FOREIGN = re.compile(r"[^A-Za-z0-9_$]")
_RESERVED = re.compile(r"(?i:[0-9]|JMSX|JMS_|(?:NULL|TRUE|FALSE|NOT|AND|OR|BETWEEN|LIKE|IN|IS|ESCAPE)$)")
"""How no name of a JMS property may begin, or what it may not be."""

_NO_ID = "the message has no message-id. Let the producer set one, or set jms.message-id = digest"
_GROUPED = (
    "the message belongs to a message group (JMSXGroupID), which the broker moves to another consumer when one is reset. Send it "
    "without a group; a selector on a property gives each partition its own messages"
)


class Outgoing(NamedTuple):
    """A message to send."""

    id: str
    key: str | bytes | None
    properties: Mapping[str, str]
    body: str | bytes


def outgoing(id_: str, key: bytes | None, headers: Headers, value: bytes) -> Outgoing:
    """Return the message for a record. Of several headers with one name the last one counts."""
    properties = {property_name(name): text for name, text in texts_of(headers).items()}
    return Outgoing(id_, None if key is None else _text_or_bytes(key), properties, _text_or_bytes(value))


def property_name(header: str) -> str:
    """Return the name of a property for that of a header."""
    name = _FOREIGN.sub("_", header) or "_"
    return f"_{name}" if _RESERVED.match(name) else name


def read_record(origin: Origin, message: Any, raw: bytes | Beginning, max_value_bytes: int, *, needs_id: bool) -> Record:
    """Return the record of a message; what cannot be read becomes a defect. `message` is None if `raw` cannot be decoded."""
    beginning = raw if isinstance(raw, Beginning) else None
    if message is None or (beginning is not None and not beginning.is_message):
        problem = "it is not a message of AMQP 1.0"
        if isinstance(raw, Beginning):
            return Record(origin, raw.value, defect=problem, cut=raw.cut)
        return Record(origin, raw[:max_value_bytes], defect=problem)
    key = _bytes_or_none(message.correlation_id)
    headers = tuple((_OURS.get(str(name), str(name)), _bytes_of(each)) for name, each in (message.properties or {}).items())
    written_at = int(message.creation_time * 1000) or None
    if beginning is not None:
        return Record(origin, beginning.value, key, headers, cut=beginning.cut, written_at=written_at)
    body = message.body
    if isinstance(body, str | bytes | bytearray | memoryview) or body is None:
        record = to_record(origin, key, _bytes_or_none(body), headers, max_value_bytes, written_at)
    else:
        problem = f"its body is of the kind {type(body).__name__}; send text or bytes"
        record = Record(origin, repr(body).encode()[:max_value_bytes], key, headers, problem, written_at=written_at)
    refused = _GROUPED if message.group_id else _NO_ID if needs_id and message.id is None else None
    return record if refused is None else Record(origin, record.value, key, headers, refused, record.cut, written_at)


def digest_of(message: Any, raw: bytes | Beginning) -> bytes:
    """Return what names a message in all its deliveries: the digest of its id, without one of its properties and its body."""
    body = raw.cut.sha256 if isinstance(raw, Beginning) else None if message is None else message.body
    if message is None:
        said = raw if isinstance(raw, bytes) else raw.cut.sha256.encode()
    elif message.id is not None:
        said = repr((type(message.id).__name__, _plain(message.id))).encode()
    else:
        properties = sorted((str(name), _plain(each)) for name, each in (message.properties or {}).items())
        said = repr((_plain(message.correlation_id), message.subject, properties, _plain(body))).encode()
    return blake2b(said, digest_size=DIGEST_BYTES).digest()


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


def _bytes_of(value: Any) -> bytes:
    if isinstance(value, bool):
        return b"true" if value else b"false"
    found = _bytes_or_none(value)
    return b"" if found is None else found


def _bytes_or_none(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    return str(value).encode("utf-8", "replace") if isinstance(value, str | int | float | UUID) else repr(value).encode()


def _text_or_bytes(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
