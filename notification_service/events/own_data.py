"""What keeps a unit's data for the handler of events: nothing, or a user's own class, `package.module:Class`."""

from typing import Any, Protocol

from resequencer.errors import TooLarge
from resequencer.event import Event
from resequencer.handler import DataHandler
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
        """Return the data with what the event brings: at most as many bytes more, when encoded, as the record has."""
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


class ForeignDataHandler:
    """Keeps a unit's data with a user's own class. `resequencer.handler.DataHandler`.

    Data are encoded and read back as soon as they change: a later failure could not be attributed to the event. During a call the
    event is in `in_flight`.
    """

    def __init__(self, users: UsersDataHandler, name: str, in_flight: InFlight | None = None) -> None:
        """Raises TypeError if a method is missing. Otherwise this would show only at an event that needs it."""
        lacking = [each for each in _METHODS if not callable(getattr(users, each, None))]
        if lacking:
            raise TypeError(f"it has no {', '.join(lacking)}")
        self.empty = users.empty
        self._users = users
        self._who = f"data handler {name}"
        self._in_flight = in_flight or Untracked()
        self._last: tuple[Any, bytes] = (self.empty, b"")

    def absorb(self, data: Any, event: Event) -> Any:
        return self._kept(self._users.absorb, data, event)

    def fill(self, data: Any, event: Event) -> Any:
        return self._kept(self._users.fill, data, event)

    def refuse_too_much(self, data: Any, event: Event, max_bytes: int, size: int) -> None:
        """Refuse an event with whose record the data could be larger than `max_bytes`.

        Raises:
            TooLarge: They could.
        """
        del data
        if size + event.record.size > max_bytes:
            raise TooLarge(
                f"the unit has {size} bytes of data and the record {event.record.size}; the limit is {max_bytes} "
                "(stash-limit.bytes-per-unit)"
            )

    def size_of(self, data: Any) -> int:
        return len(self.encode(data))

    def encode(self, data: Any) -> bytes:
        """Return the data as they are stored; those that were kept last are known.

        Raises:
            PermanentError: They cannot be encoded, or not read back.
        """
        if data is not self._last[0]:
            self._last = data, call_guarded(self._who, lambda: self._encoded(data))
        return self._last[1]

    def decode(self, stored: bytes) -> Any:
        """Return stored data.

        Raises:
            PermanentError: The class cannot read them.
        """
        self._last = call_guarded(self._who, lambda: self._users.decode(stored)), stored
        return self._last[0]

    def _kept(self, keep: Any, data: Any, event: Event) -> Any:
        self._in_flight.take(event, CallKind.KEEPING)
        try:
            kept = call_guarded(self._who, lambda: keep(data, event))
            self.encode(kept)
        finally:
            self._in_flight.clear()
        return kept

    def _encoded(self, data: Any) -> bytes:
        if data is self.empty:
            return b""
        stored = self._users.encode(data)
        if type(stored) is not bytes or not stored:
            raise TypeError(f"encode returned {stored!r:.50} instead of some bytes")
        self._users.decode(stored)
        return stored


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


def make_data_handler(name: str, known: dict[str, DataHandler], in_flight: InFlight | None = None) -> DataHandler:
    """Return one of the `known` data handlers, none, or a user's own. During calls of that the event is in `in_flight`.

    Raises:
        ConfigurationError: The user's class cannot be imported, created or used.
    """
    known = {NO_DATA_NAME: NO_DATA, **known}
    return known.get(name) or make_adapted(
        name,
        DATA_HANDLER_KEY,
        "Add a data handler",
        f"a class with {', '.join(_METHODS)}",
        lambda users_class: ForeignDataHandler(users_class(), name, in_flight),
    )
