"""What keeps a unit's data for the handler of events: nothing, or a user's own class, `package.module:Class`."""

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from resequencer.clock import Instant
from resequencer.errors import TooLarge
from resequencer.event import Event
from resequencer.handler import DataHandler, Handled, HandlerCall, Marks, find_call
from resequencer.in_flight import CallKind, InFlight, Untracked
from resequencer.users_code import call_guarded, make_adapted

DATA_HANDLER_KEY = "payment-status-notification.data-handler"
LATEST_OBJECTS_NAME, NO_DATA_NAME = "latest-objects", "none"
"""The data handlers that come with the service."""

_METHODS = ("absorb", "fill", "encode", "decode")


class UsersDataHandler(Protocol):
    """A user's own data handler. It is created without arguments, once in each process that reads units.

    It is pure: data are immutable, and the same arguments give the same data. It is called with events that have `parts`. What
    it raises makes the event a dead letter.
    """

    @property
    def empty(self) -> Any:
        """The data of a new unit. They are not stored."""
        ...

    def absorb(self, data: Any, event: Any) -> Any:
        """Return the data with what the event brings."""
        ...

    def fill(self, data: Any, event: Any) -> Any:
        """Return the data with what the event brings and the data lack: a late event must not replace anything."""
        ...

    def encode(self, data: Any) -> bytes:
        """Return the data as they are stored."""
        ...

    def decode(self, stored: bytes) -> Any:
        """Return stored data. It must raise on bytes that another class or another version has stored and it cannot read."""
        ...


class Kept(msgspec.Struct, frozen=True, eq=False):
    """What a user's class keeps of a unit, and as it is stored. Two are the same only if they are one object."""

    data: Any
    stored: bytes


def opened(data: Any) -> Any:
    """Return a unit's data as its handler gets them."""
    return data.data if isinstance(data, Kept) else data


class ForeignDataHandler:
    """Keeps a unit's data with a user's own class, each as `Kept`. `resequencer.handler.DataHandler`.

    Data are encoded and read back as soon as they change: a later failure could not be attributed to the event. Encoded they have
    `max_bytes` at most. During a call the event is in `in_flight`.
    """

    def __init__(self, users: UsersDataHandler, name: str, max_bytes: int, in_flight: InFlight | None = None) -> None:
        """Raises TypeError if a method is missing. Otherwise this would show only at an event that needs it."""
        lacking = [each for each in _METHODS if not callable(getattr(users, each, None))]
        if lacking:
            raise TypeError(f"it has no {', '.join(lacking)}")
        self.empty = Kept(users.empty, b"")
        self._users = users
        self._who = f"data handler {name}"
        self._max_bytes = max_bytes
        self._in_flight = in_flight or Untracked()

    def absorb(self, data: Kept, event: Event) -> Kept:
        return self._keep(self._users.absorb, data, event)

    def fill(self, data: Kept, event: Event) -> Kept:
        return self._keep(self._users.fill, data, event)

    def refuse_too_much(self, data: Kept, event: Event, max_bytes: int, size: int) -> None:
        """Nothing is known before the call; `absorb` and `fill` refuse too much."""

    def size_of(self, data: Kept) -> int:
        return len(data.stored)

    def encode(self, data: Kept) -> bytes:
        return data.stored

    def decode(self, stored: bytes) -> Kept:
        """Return stored data.

        Raises:
            PermanentError: The class cannot read them.
        """
        return Kept(call_guarded(self._who, lambda: self._users.decode(stored)), stored)

    def _keep(self, keep: Callable[[Any, Event], Any], before: Kept, event: Event) -> Kept:
        self._in_flight.take(event, CallKind.KEEPING)
        try:
            kept = call_guarded(self._who, lambda: self._kept(keep(before.data, event), before))
        finally:
            self._in_flight.clear()
        if len(kept.stored) > self._max_bytes:
            raise TooLarge(
                f"the unit would have {len(kept.stored)} bytes of data with this event; the limit is {self._max_bytes} "
                "(stash-limit.bytes-per-unit)"
            )
        return kept

    def _kept(self, data: Any, before: Kept) -> Kept:
        if data is before.data:
            return before
        stored = self._users.encode(data)
        if type(stored) is not bytes or not stored:
            raise TypeError(f"encode returned {stored!r:.50} instead of some bytes")
        self._users.decode(stored)
        return Kept(data, stored)


class OpeningHandler:
    """Gives a handler the data of `Kept`."""

    def __init__(self, handler: Any) -> None:
        self._handler = handler
        call = find_call(handler)
        self.call: HandlerCall | None = call and (lambda event, data, marks, now: call(event, data.data, marks, now))

    def with_lookups(self, enrichment: object) -> "OpeningHandler":
        return OpeningHandler(self._handler.with_lookups(enrichment))

    def handle(self, envelope: Event, data: Kept, marks: Marks, now: Instant) -> Handled:
        handled: Handled = self._handler.handle(envelope, data.data, marks, now)
        return handled


class _NoData:
    """Keeps no data of a unit. `resequencer.handler.DataHandler`."""

    empty = None

    def absorb(self, data: None, event: Event) -> None:
        del event
        return data

    def fill(self, data: None, event: Event) -> None:
        del event
        return data

    def refuse_too_much(self, data: None, event: Event, max_bytes: int, size: int) -> None:
        """Nothing is kept, so nothing can be too much."""

    def size_of(self, data: None) -> int:
        del data
        return 0

    def encode(self, data: None) -> bytes:
        del data
        return b""

    def decode(self, stored: bytes) -> None:
        del stored


NO_DATA = _NoData()


def make_data_handler(name: str, known: dict[str, DataHandler], max_bytes: int, in_flight: InFlight | None = None) -> DataHandler:
    """Return one of the `known` data handlers, none, or a user's own, which keeps `max_bytes` of a unit at most.

    During calls of a user's own the event is in `in_flight`.

    Raises:
        ConfigurationError: The user's class cannot be imported, created or used.
    """
    known = {NO_DATA_NAME: NO_DATA, **known}
    return known.get(name) or make_adapted(
        name,
        DATA_HANDLER_KEY,
        "Add a data handler",
        f"a class with {', '.join(_METHODS)}",
        lambda users_class: ForeignDataHandler(users_class(), name, max_bytes, in_flight),
    )
