"""Converts between messages of AMQP 1.0 and records. Pure.

An application property is a header. Names of JMS properties are Java identifiers, so a hyphen of our headers is an underscore
there: `notification-id` is `notification_id`. The correlation id is the key. Text is the body if the value is UTF-8, else bytes.

There is one for each partition of the source. Whoever changes it takes the message away and sends another in its place, in one
transaction. So a marker has an id that no other one ever had, and a worker whose marker is gone is not the owner any more.

The storage keeps the digests of their ids with the units. After a crash they come again: one whose digest is in that list has
been handled, and is accepted and dropped. A digest that stands there twice drops two messages: two messages may have the same id.
"""

import re
from base64 import b64decode, b64encode
from collections import Counter, deque
from collections.abc import Collection, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from guardian import headers as names
from guardian.headers import texts_of
from guardian.ports import PartitionOutput, Position, TransportRefused
from notification_service.connectors.jms.arriving_message import Beginning
from notification_service.connectors.kafka.core.records import to_record
from resequencer.record import Headers, Origin, Partition, Record

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
    body: str | bytes | None


def outgoing(id_: str, key: bytes | None, headers: Headers, value: bytes | None) -> Outgoing:
    """Return the message for a record. Of several headers with one name the last one counts. A null value is a body of null."""
    properties = {property_name(name): text for name, text in texts_of(headers).items()}
    return Outgoing(id_, _text_or_bytes(key), properties, _text_or_bytes(value))


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
        content = raw if isinstance(raw, bytes) else raw.cut.sha256.encode()
    elif message.id is not None:
        content = repr((type(message.id).__name__, _plain(message.id))).encode()
    else:
        properties = sorted((str(name), _plain(each)) for name, each in (message.properties or {}).items())
        content = repr((_plain(message.correlation_id), message.subject, properties, _plain(body))).encode()
    return blake2b(content, digest_size=DIGEST_BYTES).digest()


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


def _text_or_bytes(value: bytes | None) -> str | bytes | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return value


PARTITION_PROPERTY = "source_partition"
"""The property by which a partition's marker is selected."""


class Marker(msgspec.Struct, frozen=True):
    """`offset` is None as long as nothing was published. `highest` is the highest number that was, 0 for none."""

    offset: int | None = None
    metadata: str = ""
    highest: int = 0

    @property
    def position(self) -> Position | None:
        return None if self.offset is None else Position(self.offset, self.metadata, highest=self.highest)

    def after(self, output: PartitionOutput) -> "Marker":
        """Return the marker once this output is published."""
        highest = max(self.highest, output.position.highest, *(each.number for each in output.records), 0)
        return Marker(output.position.offset, output.position.metadata, highest)

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()


def decode_marker(text: object) -> Marker | None:
    """Return the marker in a message's body; None if another program has written it."""
    try:
        return msgspec.json.decode(text, type=Marker) if isinstance(text, str) else None
    except (msgspec.DecodeError, RecursionError):
        return None


def selector_of(partition: Partition) -> str:
    """Return the selector that takes the partition's marker alone."""
    name = str(partition).replace("'", "''")
    return f"{PARTITION_PROPERTY} = '{name}'"


class Taken(NamedTuple):
    """A message that was given to the worker under an offset. `number` names it on its link."""

    offset: int
    number: int
    digest: bytes


class TakenMessages:
    """The state of a partition after a seek. `limit` bounds the digests of an earlier owner: its oldest are forgotten first."""

    def __init__(self, partition: str, state: str, limit: int) -> None:
        self._earlier = deque(_decode(partition, state), maxlen=limit)
        self._awaited = Counter(self._earlier)
        self._dropped: dict[int, bytes] = {}
        self._taken: deque[Taken] = deque()

    @property
    def dropped(self) -> Collection[int]:
        """The numbers of messages that came again, and are to be accepted."""
        return self._dropped.keys()

    @property
    def has_earlier(self) -> bool:
        """Whether messages of an earlier owner may still come."""
        return bool(self._earlier)

    def drop_known(self, number: int, digest: bytes) -> bool:
        """Return whether an earlier owner has handled this message. If so, it is among `dropped` from now on."""
        if not self._awaited[digest]:
            return False
        self._awaited[digest] -= 1
        self._dropped[number] = digest
        return True

    def take(self, taken: Taken) -> None:
        self._taken.append(taken)

    def below(self, offset: int) -> list[int]:
        """Return the numbers of the messages that were taken below the offset."""
        return [each.number for each in self._taken if each.offset < offset]

    def note_accepted(self, numbers: Collection[int]) -> None:
        """Forget messages that the broker has accepted for certain."""
        gone = set(numbers)
        for each in gone & self._dropped.keys():
            self._earlier.remove(self._dropped.pop(each))
        self._taken = deque(each for each in self._taken if each.number not in gone)

    def forget_earlier(self) -> None:
        """Forget the messages of an earlier owner that did not come: they were accepted."""
        came = Counter(self._dropped.values())
        self._earlier = deque(came.elements(), maxlen=self._earlier.maxlen)
        self._awaited = Counter()

    def state(self) -> str:
        """Return all digests, for `Polled.source_states`."""
        return b64encode(b"".join([*self._earlier, *(each.digest for each in self._taken)])).decode()


def _decode(partition: str, state: str) -> list[bytes]:
    try:
        packed = b64decode(state, validate=True)
    except ValueError:
        packed = b"?"
    if len(packed) % DIGEST_BYTES:
        problem = "the storage's list of its messages cannot be read: another kind of source has written it. Restore the storage"
        raise TransportRefused(partition, problem)
    return [packed[at : at + DIGEST_BYTES] for at in range(0, len(packed), DIGEST_BYTES)]
