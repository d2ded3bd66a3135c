"""A user's own format, `package.module:Class`: its class reads a record, and what it returns is verified here."""

from hashlib import blake2b
from types import NoneType
from typing import Any, Protocol, TypeVar

import msgspec

from notification_service.events.format import (
    FLOW,
    DecodingSettings,
    RecordDecoder,
    Refused,
    as_instant,
    checked_id,
    contents_digest,
    id_without_one,
)
from notification_service.events.identifiers import hash_id
from resequencer.clock import Instant
from resequencer.dead_letter import DeadLetterReason
from resequencer.errors import LONGEST_WORDS, EndedItsWorker, PermanentError
from resequencer.event import Event, Refusal
from resequencer.in_flight import CallKind, InFlight, Untracked
from resequencer.printable import printable
from resequencer.record import Record
from resequencer.users_code import call_guarded

_E = TypeVar("_E", bound=Event)
_TEXT, _NUMBER = (str,), (int, NoneType)
_TYPES: dict[str, tuple[type, ...]] = {
    "unit": _TEXT, "flow": _TEXT, "sequence": _NUMBER, "event_id": _TEXT, "id_hash": (bytes,), "digest": (bytes,),
    "parts": (tuple,), "weight": (int,), "entity": (str, NoneType), "time": _NUMBER, "previous": (str, NoneType),
}  # fmt: skip
_IDS = ("unit", "flow", "event_id", "entity", "previous")
_HASH_BYTES = 8
_NUMBERS = 2**63
_pack = msgspec.msgpack.Encoder().encode


class UsersFormat(Protocol):
    """A user's own format. It is created once in each process that reads events, with the `DecodingSettings`.

    A new `version`, an attribute that it may have, is another format for what is stored: it is to change when the same records
    lead to other events.
    """

    def decode(self, record: Record) -> Event | Refusal:
        """Return the event in a record, made by `make_event`, or why there is none.

        Anything that it raises means that the record is none, and is the error of its dead letter.
        """
        ...


def make_event(  # noqa: PLR0913 - the fields of an event, by name, for users
    record: Record,
    unit: str,
    *,
    flow: str = FLOW,
    sequence: int | None = None,
    event_id: str | None = None,
    parts: tuple[str, ...] = (),
    time: Instant | None = None,
    previous: str | None = None,
    weight: int = 0,
    kind: type[_E] = Event,  # type: ignore[assignment]  # The default is for a caller that wants no subclass.
    **fields: Any,
) -> _E:
    """Return the event in a record; its digest covers the arguments, key and value, and no header.

    Without `event_id` it is `flow#sequence`, or `flow#digest` if there is no sequence; the digest of that if it is too long.
    `time` is in milliseconds since 1970. `kind` is a subclass of `Event` that has the further `fields`; `weight` is about their
    memory beyond a copy of the record, in bytes.
    """
    digest = contents_digest(record, flow, sequence, parts, time, previous)
    if event_id is None:
        event_id = id_without_one(flow, sequence, digest)
    known = (unit, flow, sequence, event_id, hash_id(event_id), digest, record, parts, weight, None, time, previous)
    return kind(*known, **fields)


class ForeignFormat(RecordDecoder[Event]):
    """Reads records with a user's own format. Whatever that raises or returns costs its record, and not the worker.

    During a call the record is in `in_flight`, as an event of no unit: it has not been read yet.
    """

    a_record, records = "a record of the format", "records"

    def __init__(self, users: UsersFormat, name: str, settings: DecodingSettings, in_flight: InFlight | None = None) -> None:
        """Raises TypeError if the format has no method `decode`. Otherwise this would show only at the first record."""
        super().__init__(settings)
        if not callable(getattr(users, "decode", None)):
            raise TypeError("it has no method decode")
        self._users = users
        self.version = getattr(users, "version", None)
        self._who = f"format {name}"
        self._in_flight = in_flight or Untracked()

    def _event(self, record: Record) -> Event:
        try:
            return self._checked(self._asked(record), record)
        except EndedItsWorker as error:
            raise Refused(error.reason, str(error)) from error
        except PermanentError as error:
            raise Refused(DeadLetterReason.UNDECODABLE, printable(str(error))[:LONGEST_WORDS]) from error

    def _asked(self, record: Record) -> Any:
        self._in_flight.take(_unread(record), CallKind.READING)
        try:
            return call_guarded(self._who, lambda: self._users.decode(record))
        finally:
            self._in_flight.clear()

    def _checked(self, found: Any, record: Record) -> Event:
        """Return the event that the format returned. All types are verified, because foreign code made it.

        Raises:
            Refused, PermanentError: It cannot be used, or it is a refusal.
        """
        if isinstance(found, Refusal):
            reason, error = call_guarded(self._who, lambda: (DeadLetterReason(found.reason), printable(f"{found.error}")))
            raise Refused(reason, error[:LONGEST_WORDS])
        if not isinstance(found, Event):
            raise PermanentError(f"{self._who} returned {type(found).__name__}; return an event of make_event, or a Refusal")
        if found.record is not record:
            raise PermanentError(f"{self._who} returned the event of another record; give make_event the record that came")
        if not found.unit:
            raise Refused(DeadLetterReason.NO_UNIT_OF_WORK, f"{self._who} found no unit; set it to the unit of work")
        for name, types in _TYPES.items():
            if type(value := getattr(found, name)) not in types:
                wanted = " or ".join(each.__name__ for each in types)
                raise PermanentError(f"{self._who} gave {name} as {type(value).__name__}; give {wanted}")
        ids = [(name, getattr(found, name)) for name in _IDS] + [("parts", each) for each in found.parts]
        for name, identifier in ids:
            self._check_id(name, identifier)
        return self._with_numbers(found)

    def _with_numbers(self, found: Event) -> Event:
        """Return the event without a sequence that is not valid and not needed.

        Raises:
            Refused, PermanentError: A number cannot be used.
        """
        if not (len(found.id_hash) == len(found.digest) == _HASH_BYTES and found.weight >= 0):
            raise PermanentError(
                f"{self._who} gave hashes that have not {_HASH_BYTES} bytes, or a negative weight; use make_event"
            )
        for name in ("sequence", "time"):
            if (number := getattr(found, name)) is not None and abs(number) >= _NUMBERS:
                raise PermanentError(f"{self._who} gave a {name} of {number.bit_length()} bits; give at most 63")
        if found.time is not None and as_instant(found.time) is None:
            raise PermanentError(f"{self._who} gave a time outside the years 1 to 9999; give milliseconds since 1970")
        self._time(found.time, "time")
        sequence = self._sequence(b"null" if found.sequence is None else msgspec.json.encode(found.sequence))
        return found if sequence == found.sequence else msgspec.structs.replace(found, sequence=sequence)

    def _check_id(self, name: str, identifier: Any) -> None:
        if identifier is None and name != "parts":
            return
        if type(identifier) is not str:
            raise PermanentError(f"{self._who} gave a {type(identifier).__name__} among {name}; give texts")
        try:
            checked_id(name, identifier).encode()
        except UnicodeEncodeError as error:
            raise Refused(DeadLetterReason.INVALID_ID, f"{name} has half a surrogate pair; send valid Unicode") from error


def _unread(record: Record) -> Event:
    """Return what stands for a record until its event is known: the same for the same record, with hashes of its bytes."""
    hashes = blake2b(_pack((record.key, record.headers, record.value)), digest_size=2 * _HASH_BYTES).digest()
    return Event("", "", None, "", hashes[:_HASH_BYTES], hashes[_HASH_BYTES:], record)
