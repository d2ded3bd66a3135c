"""A user's own handler of events that are no payments: a failure costs only the event on which it occurs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from guardian.headers import (
    ENVELOPE_ID,
    NOTIFICATION_ID,
    SOURCE_POSITION,
    UNIT_OF_WORK,
    find_reserved,
    mark_headers,
)
from notification_service.events.identifiers import shown
from notification_service.events.trace_context import trace_headers
from resequencer.clock import Instant
from resequencer.errors import PermanentError, TooLarge, TransientError
from resequencer.event import Event
from resequencer.handler import Handled, HandlerCall, Marks
from resequencer.notification import Notification, notification_id
from resequencer.record import Headers
from resequencer.users_code import FindWay, call_guarded, refuse_awaitable, within_the_turn

STATUS = "published"
"""What such notifications are counted under."""

_MAX_INDEX = 2**31


class EventMessage(msgspec.Struct, frozen=True, gc=False):
    """A notification of a user's own handler of events that are no payments. The service adds the id and its own headers.

    `index` counts the notifications of an event from 0. It determines the notification's id, so each is there once. `key` UNSET
    is the unit of work. `headers` are those of the user, of other names than the service's. Value and key may be null.
    """

    index: int
    value: bytes | None
    key: bytes | UnsetType | None = UNSET
    headers: Headers = ()


class UsersEventHandler(Protocol):
    """A user's own handler, `package.module:Class`. It is created once in each worker, with the `HandlerSettings`."""

    def handle(self, event: Any, data: Any, marks: Marks, now: Instant) -> Iterable[EventMessage]:
        """Return all messages of the event, which is as the configured format makes it. `data` are what the data handler keeps.

        It may be `async def`, also with `yield`: then it is called beside the worker's thread, for several units at a time.

        Raises:
            DependencyUnavailable, TransientError, PermanentError: As in `Handler`. Any other exception is a PermanentError.
        """
        ...


class ForeignEventHandler:
    """Makes notifications of the messages of the user's handler. Their ids and our headers follow docs/contract.md, section 19.

    A `TransientError` of the handler passes. Any other exception, and any unusable answer, becomes a `PermanentError`. With a way
    to call it beside the turn there is a method `call` (`resequencer.handler.HandlerCall`), which takes the place of `handle`.
    """

    def __init__(self, handler: UsersEventHandler, name: str, max_bytes: int, find_way: FindWay = within_the_turn) -> None:
        """Raises TypeError if the handler has no method `handle`. Otherwise this would show only at the first event."""
        if not callable(getattr(handler, "handle", None)):
            raise TypeError("it has no method handle")
        self._handler = handler
        self._who = f"handler {name}"
        self._max_bytes = max_bytes
        self._way = find_way(handler.handle)
        self.call: HandlerCall | None = None if self._way is None else self._call

    def with_lookups(self, enrichment: object) -> ForeignEventHandler:
        """Return itself: lookups are of payments."""
        del enrichment
        return self

    def handle(self, envelope: Event, data: Any, marks: Marks, now: Instant) -> Handled:
        """Call the user's handler. An event without a message counts as suppressed.

        Raises:
            TransientError: The handler asks to be called again.
            PermanentError: The handler failed, or its answer cannot be used.
            TooLarge: The messages together are too large.
        """
        messages = call_guarded(self._who, lambda: self._listed(self._handler.handle(envelope, data, marks, now)), TransientError)
        return self._handled(messages, envelope, marks)

    async def _call(self, envelope: Event, data: Any, marks: Marks, now: Instant) -> Handled:
        assert self._way is not None, "only a handler that waits is called beside the turn"
        call = partial(self._handler.handle, envelope, data, marks, now)
        return self._handled(await self._way(self._who, envelope, call, self._listed), envelope, marks)

    def _handled(self, messages: list[Any], envelope: Event, marks: Marks) -> Handled:
        made = call_guarded(self._who, lambda: self._notifications(messages, envelope, marks))
        if sum([each.size for each in made]) > self._max_bytes:
            raise TooLarge(
                f"{self._who} made more than {self._max_bytes} bytes of notifications of one event; "
                "make less of it, or raise max-record-bytes to more than a quarter of what they take"
            )
        return Handled(tuple(made), suppressed=not made)

    def _listed(self, answer: Any) -> list[Any]:
        if not isinstance(answer, Iterable):
            refuse_awaitable(f"handle of {self._who}", answer)
            raise PermanentError(f"handle of {self._who} must yield EventMessage; it returned {_kind(answer)}")
        return list(answer)

    def _notifications(self, messages: list[Any], event: Event, marks: Marks) -> list[Notification]:
        used: set[int] = set()
        return [self._notification(each, event, marks, used) for each in messages]

    def _notification(self, message: Any, event: Event, marks: Marks, used: set[int]) -> Notification:
        """Return the notification of a message. All types are verified, because foreign code made it."""
        if not isinstance(message, EventMessage):
            raise PermanentError(f"handle of {self._who} must yield EventMessage; it yielded {_kind(message)}")
        index: Any = message.index
        value: Any = message.value
        key: Any = message.key
        unit = event.unit.encode()
        if key is UNSET:
            key = unit
        if type(index) is not int or not 0 <= index < _MAX_INDEX or index in used:
            raise PermanentError(f"{self._who} gave the index {index!r:.50}; number the messages of an event, each once, from 0")
        used.add(index)
        for field, given in (("value", value), ("key", key)):
            if not isinstance(given, bytes | None):
                raise PermanentError(f"{self._who} gave {_kind(given)} as {field}; give bytes or None")
        identifier, record = notification_id(event.unit, event.event_id, index), event.record
        ours = (
            (NOTIFICATION_ID, identifier.encode()),
            (ENVELOPE_ID, event.event_id.encode()),
            (SOURCE_POSITION, str(record.origin).encode()),
            *(() if key == unit else ((UNIT_OF_WORK, unit),)),
            *mark_headers(marks.incomplete, is_late=marks.late, is_ordered=marks.ordered),
            *trace_headers(record.headers),
        )
        headers = (*self._own(message.headers), *ours)
        return Notification(identifier, event.unit, STATUS, _plain(value), headers, record.origin, key=_plain(key))

    def _own(self, headers: Any) -> Headers:
        own = tuple((name, b"".join((value,))) for name, value in headers)
        for name, _ in own:
            if type(name) is not str or not name:
                raise PermanentError(f"{self._who} gave a header with the name {name!r:.50}; give texts")
            name.encode()
        if (reserved := find_reserved(own)) is not None:
            raise PermanentError(f"{self._who} gave the header {shown(reserved)}, which is the service's; choose another name")
        return own


def _kind(given: Any) -> str:
    return "None" if given is None else f"an object of type {type(given).__name__}"


def _plain(found: bytes | None) -> bytes | None:
    """Return it as bytes: a subclass, such as numpy's, could not be stored."""
    return None if found is None else b"".join((found,))
