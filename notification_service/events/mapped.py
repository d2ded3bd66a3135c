"""Any records as events: what an event needs is mapped from the key, the headers and paths in a JSON value.

If nothing is mapped from the value, the value is not read: it may be Avro, Protobuf, anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Annotated, Any, NamedTuple

import msgspec

from notification_service.events.format import (
    BYTE_ORDER_MARK,
    FLOW,
    DecodingSettings,
    RecordDecoder,
    Refused,
    checked_id,
    contents_digest,
    find_encoding_flaw,
    find_reading_flaw,
    id_without_one,
    read_instant,
    read_milliseconds,
)
from notification_service.events.identifiers import hash_id, shown
from resequencer.clock import Instant
from resequencer.dead_letter import DeadLetterReason
from resequencer.event import Event
from resequencer.keys.configuration_key import Key
from resequencer.keys.value_types import Mismatch, Text
from resequencer.record import Record

KEY = "key"
"""The place of the unit that is the record's key."""

POSITION, DIGEST = "position", "digest"
"""Ids that are mapped from nothing: no record is a duplicate; equal contents are one event."""

SPRING_TYPES = "spring_json_header_types"
"""A record with this header has headers that Spring wrote: texts are in JSON, with quotes."""

_PLACE = re.compile(r"key|header:(?P<header>.+)|(?P<part>key|value):(?P<path>[^.]+(?:\.[^.]+)*)", re.DOTALL)
_PART_BYTES = 150
_NULL = msgspec.Raw(b"null")
_read_text = msgspec.json.Decoder(str).decode
_read_list = msgspec.json.Decoder(list[msgspec.Raw] | None).decode


class Place(NamedTuple):
    """Where a field of an event is: the whole `key` or one `header` (`name`), or at a `path` in the JSON of key or value."""

    text: str
    part: str
    name: str = ""
    path: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str) -> Place:
        """Return the place.

        Raises:
            ValueError: The text is none: use key, header:NAME, key:PATH or value:PATH.
        """
        found = _PLACE.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is no place; use key, header:NAME, key:PATH or value:PATH")
        if found["header"] is not None:
            return cls(text, "header", found["header"])
        return cls(text, "key") if found["part"] is None else cls(text, found["part"], path=tuple(found["path"].split(".")))


_PLACES = "key, header:NAME, key:PATH or value:PATH"
_PATTERN = r"key|header:.+|(?:key|value):[^.]+(?:\.[^.]+)*"
_LIKE_JSONPATH = re.compile(r"(key|value):(\$(?=[.\[]|$)|/)(.*)", re.DOTALL)
_SEPARATORS = re.compile(r"[./\[\]'\"]+")


class PlaceText(Text, frozen=True):
    """The text of a place. What is written as JSONPath or JSON Pointer is refused with our way to write it."""

    def read_other(self, value: Any) -> str:
        text = super().read_other(value)
        if (found := _LIKE_JSONPATH.fullmatch(text)) is not None:
            part, _, path = found.groups()
            raise Mismatch(f"a path has no $ and no /; write {part}:{_SEPARATORS.sub('.', path).strip('.') or 'PATH'}")
        return text


_OPTIONAL = PlaceText(_PATTERN, _PLACES, "there is none")
_ID = PlaceText(f"position|digest|{_PATTERN}", f"position, digest, {_PLACES}", "flow#sequence")


class Mapping(msgspec.Struct, frozen=True):
    """Where the fields of an event are; None: there is none. `id` may also be `position` or `digest`; None: `flow#sequence`."""

    unit: Annotated[str, Key(PlaceText(_PATTERN, _PLACES))] = KEY
    sequence: Annotated[str | None, Key(_OPTIONAL)] = None
    flow: Annotated[str | None, Key(PlaceText(_PATTERN, _PLACES, "all are one flow"))] = None
    id: Annotated[str | None, Key(_ID)] = None
    type: Annotated[str | None, Key(_OPTIONAL)] = None
    time: Annotated[str | None, Key(_OPTIONAL)] = None
    previous: Annotated[str | None, Key(_OPTIONAL)] = None


class MappedDecoder(RecordDecoder[Event]):
    """Decodes records by a mapping."""

    a_record, records = "a record of the mapping", "records"

    def __init__(self, settings: DecodingSettings, mapping: Mapping) -> None:
        """Raises ValueError for a text that names no place."""
        super().__init__(settings)
        self._id = mapping.id
        fields = {
            "unit": mapping.unit,
            "sequence": mapping.sequence,
            "flow": mapping.flow,
            "id": None if mapping.id in (POSITION, DIGEST) else mapping.id,
            "type": mapping.type,
            "time": mapping.time,
            "previous": mapping.previous,
        }
        self._places = {name: Place.of(text) for name, text in fields.items() if text is not None}
        self._readers = {part: _Reader(part, self._places.values()) for part in ("key", "value")}

    def _event(self, record: Record) -> Event:
        found = _Found(record, self._readers, self._places)
        unit = found.text("unit")
        if unit is None:
            error = f"unit ({self._places['unit'].text}) is missing; set it to the unit of work, or correct the mapping"
            raise Refused(DeadLetterReason.NO_UNIT_OF_WORK, error)
        unit = checked_id(f"unit ({self._places['unit'].text})", unit)
        flow = found.id("flow") or FLOW
        place = self._places.get("sequence")
        sequence = self._sequence(found.number("sequence"), None if place is None else place.text)
        kind, previous = found.id("type"), found.id("previous")
        place = self._places.get("time")
        time = self._time(found.instant("time"), "time" if place is None else f"time ({place.text})")
        parts = () if kind is None else (kind,)
        digest = contents_digest(record, flow, sequence, parts, time, previous)
        event_id = self._event_id(found, record, flow, sequence, digest)
        weight = _PART_BYTES * len(self._places)
        return Event(unit, flow, sequence, event_id, hash_id(event_id), digest, record, parts, weight, None, time, previous)

    def _event_id(self, found: _Found, record: Record, flow: str, sequence: int | None, digest: bytes) -> str:
        if self._id == POSITION:
            return str(record.origin)
        if self._id not in (None, DIGEST):
            identifier = found.id("id")
            if identifier is None:
                error = f"id ({self._places['id'].text}) is missing; set it, or correct the mapping"
                raise Refused(DeadLetterReason.INVALID_ID, error)
            return identifier
        return digest.hex() if self._id == DIGEST else id_without_one(flow, sequence, digest)


class _Found:
    """The fields of one record, by the name of the field."""

    def __init__(self, record: Record, readers: dict[str, _Reader], places: dict[str, Place]) -> None:
        self._record = record
        self._places = places
        self._key = readers["key"].read(record.key)
        self._value = readers["value"].read(record.value)

    def text(self, field: str) -> str | None:
        """Return a field as text: a text or a whole number of JSON, or the bytes of a header or of the key.

        Raises:
            Refused: It is something else.
        """
        raw = self._find(field)
        if raw is None:
            return None
        if not isinstance(raw, msgspec.Raw):
            return self._decoded(field, raw)
        literal = bytes(raw)
        if literal[:1] == b'"':
            return _read_text(literal)
        if literal.lstrip(b"-").isdigit():
            return literal.decode()
        where = f"{field} ({self._places[field].text})"
        value = shown(literal.decode())
        raise Refused(DeadLetterReason.INVALID_ID, f"{where} is {value}; send a text or a whole number, or correct the mapping")

    def id(self, field: str) -> str | None:
        """Return a field as a valid id, None if there is none."""
        text = self.text(field)
        return None if text is None else checked_id(f"{field} ({self._places[field].text})", text)

    def number(self, field: str) -> bytes:
        """Return a field as raw JSON: digits are a number, also as text."""
        raw = self._find(field)
        if raw is None:
            return b"null"
        if isinstance(raw, msgspec.Raw) and (literal := bytes(raw))[:1] != b'"':
            return literal
        text = self.text(field) or ""
        if text.isascii() and text.isdigit():
            return (text.lstrip("0") or "0").encode()
        return msgspec.json.encode(text)

    def instant(self, field: str) -> Instant | None:
        """Return a field as an instant: RFC 3339, or milliseconds since 1970; None for anything else."""
        raw = self._find(field)
        if raw is None:
            return None
        if isinstance(raw, msgspec.Raw) and (literal := bytes(raw))[:1] != b'"':
            return read_milliseconds(literal.decode())
        try:
            text = self.text(field) or ""
        except Refused:
            return None
        instant = read_milliseconds(text)
        return read_instant(text) if instant is None else instant

    def _find(self, field: str) -> bytes | msgspec.Raw | None:
        """Return what is at the place of a field, None if nothing is. An empty header is nothing: it may have been null."""
        place = self._places.get(field)
        if place is None:
            return None
        if place.part == "header":
            values = [value for name, value in self._record.headers if name == place.name]
            return values[-1] or None if values else None
        if place.path:
            return (self._key if place.part == "key" else self._value)(place.path)
        return self._record.key

    def _decoded(self, field: str, value: bytes) -> str:
        try:
            text = value.decode()
        except UnicodeDecodeError as error:
            where = f"{field} ({self._places[field].text})"
            raise Refused(DeadLetterReason.INVALID_ID, f"{where} is {shown(value)}, which is not UTF-8; send text") from error
        if (
            text[:1] == '"'
            and self._places[field].part == "header"
            and any(name == SPRING_TYPES for name, _ in self._record.headers)
        ):
            with suppress(msgspec.DecodeError):  # Spring writes texts without quotes unless it is configured so.
                return _read_text(value)
        return text


_Find = Callable[[tuple[str, ...]], msgspec.Raw | None]


class _Reader:
    """Reads paths in the JSON of a part of a record. They are compiled once to a decoder that builds nothing else."""

    def __init__(self, part: str, places: Iterable[Place]) -> None:
        self._part = part
        paths = [each.path for each in places if each.part == part and each.path]
        self._node = _Node(paths) if paths else None

    def read(self, value: bytes | None) -> _Find:
        """Return how to find a path in this value. Null, and no value, have none.

        Raises:
            msgspec.DecodeError, RecursionError: It is not JSON, or something on a path is no object or array.
        """
        if self._node is None or value is None:
            return _nothing
        value = value.removeprefix(BYTE_ORDER_MARK)
        if (flaw := find_encoding_flaw(value)) is not None:
            raise msgspec.DecodeError(flaw)
        found: dict[tuple[str, ...], msgspec.Raw] = {}
        self._node.collect(value, (), found)
        if (flaw := find_reading_flaw(value)) is not None:
            raise msgspec.DecodeError(flaw)
        return found.get


class _Node:
    """What is wanted of an object or array: its members by their names or numbers, each a value or a node again."""

    def __init__(self, paths: Sequence[tuple[str, ...]]) -> None:
        names = list(dict.fromkeys(path[0] for path in paths))
        self._is_array = all(name.isascii() and name.isdigit() for name in names)
        self._leaves = {path[0] for path in paths if len(path) == 1}
        deeper = {name: [path[1:] for path in paths if path[0] == name and len(path) > 1] for name in names}
        self._nodes = {name: _Node(rest) for name, rest in deeper.items() if rest}
        self._names = names
        fields: list[Any] = [(f"f{at}", msgspec.Raw, _NULL) for at in range(len(names))]
        made: Any = msgspec.defstruct("Members", fields, rename={f"f{at}": name for at, name in enumerate(names)}, gc=False)
        self._read_object: Callable[[bytes], Any] = msgspec.json.Decoder(made | None).decode

    def collect(self, value: bytes, path: tuple[str, ...], found: dict[tuple[str, ...], msgspec.Raw]) -> None:
        """Add the values at the paths below this one. Null is the same as absent."""
        for name, raw in self._members(value):
            if bytes(raw) == b"null":
                continue
            if name in self._leaves:
                found[*path, name] = raw
            if name in self._nodes:
                self._nodes[name].collect(bytes(raw), (*path, name), found)

    def _members(self, value: bytes) -> Iterable[tuple[str, msgspec.Raw]]:
        if self._is_array and value.lstrip()[:1] == b"[":
            elements = _read_list(value) or []
            return [(name, elements[int(name)]) for name in self._names if int(name) < len(elements)]
        read = self._read_object(value)
        return () if read is None else [(name, getattr(read, f"f{at}")) for at, name in enumerate(self._names)]


def _nothing(path: tuple[str, ...]) -> None:
    del path
