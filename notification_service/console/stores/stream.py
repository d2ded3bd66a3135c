"""Pushes what a store has completed, as server-sent events or by a web socket, each event with the place behind it.

    id: 0:12,1:7
    event: completed
    data: {"group": "…", "report": 1, "message_id": "…", "status": "ACCC", …}

A message of a web socket is the same as one JSON object: `{"id": "0:12,1:7", "event": "completed", "data": {…}}`. Who hands in an
id as `Last-Event-ID` or `?after=` continues there without loss or doubles.

`begin` has the place at which a stream begins, `gap` says what is gone, `problem` that the completions cannot be read and since
when, `progress`, where it is asked for, that values have changed. After a while without an event a comment comes, and by a web
socket a ping.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from time import monotonic
from typing import Any, Literal, NamedTuple

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import StreamingResponse
from starlette.types import Message, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from notification_service.aggregation.completions import Completed, Place
from notification_service.console.context import Listening
from notification_service.console.stores.feed import Listener, NoPlace, Portion, StoreFeed, place_of, place_text
from notification_service.console.stores.watch import WatchedStore
from notification_service.events.identifiers import shown
from resequencer.clock import instant_text
from resequencer.errors import ResequencerError
from resequencer.printable import printable

_log = logging.getLogger("resequencer.console")
_SENT_AT_ONCE = 200
_HEARTBEAT_SECONDS = 15.0
_AGAIN_MS = 2_000
_SEND_SECONDS = 20.0
"""How long one piece may take. A client that takes nothing for so long is cut off."""
_LISTEN_SECONDS = 3_600.0
"""After so long a stream ends, and its client continues with a new request: a login that was taken away ends within that time."""
_LAST_EVENT = "last-event-id"


class StreamEvent(NamedTuple):
    """An event, with its data as JSON, and the place behind it."""

    name: str
    data: bytes
    place: str | None

    def as_text(self) -> str:
        """As a server-sent event. JSON has no line breaks."""
        identified = f"id: {self.place}\n" if self.place else ""
        return f"{identified}event: {self.name}\ndata: {self.data.decode()}\n\n"

    def as_message(self) -> str:
        """As a message of a web socket."""
        return msgspec.json.encode({"id": self.place, "event": self.name, "data": msgspec.Raw(self.data)}).decode()


class End(NamedTuple):
    """Why a stream ends, with the code for a web socket (RFC 6455, section 7.4)."""

    code: int
    reason: str


_CONSOLE_ENDS = End(1012, "the console ends; listen again behind the last id")
_BEHIND = End(1013, "you fell behind; listen again behind the last id")
_LONG = End(1013, "log in and listen again behind the last id: a stream ends after an hour")
_SENT_SOMETHING = End(1008, "a listener sends nothing")


def place_asked(connection: HTTPConnection, after: str) -> Place | None:
    """Return the place of the header `Last-Event-ID`, else of `after`; None without both. Raises HTTPException (400)."""
    last = connection.headers.get(_LAST_EVENT) or after
    try:
        return place_of(last) if last else None
    except NoPlace as error:
        raise HTTPException(400, f"after is {shown(last[:100])}; expected: the id of an event") from error


class EventStream(StreamingResponse):
    """Ends if its client takes nothing for a while."""

    media_type = "text/event-stream"

    async def stream_response(self, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            await asyncio.wait_for(send(message), _SEND_SECONDS)

        try:
            await super().stream_response(send_in_time)
        except TimeoutError:
            _log.info("a browser that took no events for %.0f s was cut off; it resumes where it was", _SEND_SECONDS)


async def stream(
    feed: StoreFeed, after: Place | None, look: Callable[[], object] | None, *, sees_values: bool = False
) -> AsyncIterator[str]:
    """Yield the events behind a place, or from now on, until the client is gone, falls behind, or the feed ends.

    With `look` there are also events that values have changed; it keeps the values fresh, and is called in a thread.
    """
    yield f"retry: {_AGAIN_MS}\n\n"
    sending = Sending(feed, after, sees_values=sees_values)
    async with aclosing(sending.portions(look)) as portions:
        async for portion in portions:
            yield "".join(each.as_text() for each in portion) or ": nothing new\n\n"
    if sending.end is not None:
        yield f": {sending.end.reason}\n\n"


class EventsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`after` is the id of the last event that was seen; the header `Last-Event-ID` counts more. Without both, from now on.

    With `progress` there are also events that counts of groups have changed.
    """

    after: str = ""
    progress: Literal["true", "false"] = "false"


def listen(
    listening: Listening, request: Request, store: WatchedStore, query: EventsQuery, note: Callable[[], bool] = lambda: False
) -> EventStream:
    """Return the events of a store. `note` is called before, and returns whether the listener sees values.

    Raises:
        HTTPException: As many listen as may (503), or the place is none (400).
    """
    listening.check()
    after = place_asked(request, query.after)
    look = store.watch.look if query.progress == "true" else None
    return EventStream(listening.counted(stream(store.feed, after, look, sees_values=note())))


async def serve_socket(socket: WebSocket, sending: "Sending") -> None:
    """Send the events by a web socket that is not accepted yet, until its client is gone or sends something, or they end."""
    await socket.accept()
    sent, received = asyncio.create_task(_send_all(socket, sending)), asyncio.create_task(socket.receive())
    try:
        await asyncio.wait((sent, received), return_when=asyncio.FIRST_COMPLETED)
        is_heard = received.done()
    finally:
        sent.cancel()
        received.cancel()
        await asyncio.gather(sent, received, return_exceptions=True)
    is_gone = is_heard and received.result()["type"] == "websocket.disconnect"
    end = None if is_gone else _SENT_SOMETHING if is_heard else sent.result()
    if end is not None:
        with suppress(WebSocketDisconnect):
            await socket.close(end.code, end.reason)


async def _send_all(socket: WebSocket, sending: "Sending") -> End | None:
    """Return why the events end; None: the client is gone."""
    with suppress(WebSocketDisconnect):
        async with aclosing(sending.portions(None)) as portions:
            async for portion in portions:
                for each in portion:
                    await socket.send_text(each.as_message())
    return sending.end


class Sending:
    """What one listener is sent. `end` says at the end why it was ended; None: its client was gone."""

    def __init__(self, feed: StoreFeed, after: Place | None, *, sees_values: bool) -> None:
        self.end: End | None = None
        self._feed, self._sees_values = feed, sees_values
        self._after = after
        self._at: dict[int, int] | None = None
        self._until: Place | None = None
        self._number = 0
        self._problem: object = None
        self._changes = feed.changes
        self._listener: Listener

    async def portions(self, look: Callable[[], object] | None) -> AsyncGenerator[Sequence[StreamEvent], None]:
        """Yield events, and nothing in a portion when there was none for a while."""
        self._listener, until = self._feed.listen(), monotonic() + _LISTEN_SECONDS
        try:
            while True:
                self._listener.news.clear()
                if (end := self._find_end(until)) is not None:
                    self.end = end
                    return
                if look is not None:
                    await asyncio.to_thread(look)
                has_sent = False
                async for portion in self._news(is_progress_wanted=look is not None):
                    has_sent = True
                    yield portion
                if self._find_end(until) is None and not (has_sent and self._has_more) and not await self._wait():
                    yield ()
        finally:
            self._feed.leave(self._listener)

    @property
    def _has_more(self) -> bool:
        return self._until is not None or bool(self._feed.take(self._number, 1))

    def _find_end(self, until: float) -> End | None:
        if self._feed.is_ended:
            return _CONSOLE_ENDS
        if self._at is not None and self._feed.take(self._number, 1) is None:
            _log.info("a browser fell behind and was cut off; it resumes where it was")
            return _BEHIND
        return _LONG if monotonic() > until else None

    async def _wait(self) -> bool:
        try:
            await asyncio.wait_for(self._listener.news.wait(), _HEARTBEAT_SECONDS)
        except TimeoutError:
            return False
        return True

    async def _news(self, *, is_progress_wanted: bool) -> AsyncIterator[Sequence[StreamEvent]]:
        if self._feed.problem != self._problem:
            self._problem = problem = self._feed.problem
            data = None if problem is None else {"problem": problem.text, "since": instant_text(problem.since)}
            yield [_event("problem", data)]
        if self._at is None and (joined := self._feed.join(self._after)) is not None:
            self._number, self._until = joined.number, joined.until
            self._at = dict(joined.at)
            yield [_event("begin", None, self._at)]
        if self._at is not None and self._until is not None:
            async for portion in self._again(self._until):
                yield portion
        elif self._at is not None and (kept := self._feed.take(self._number, _SENT_AT_ONCE)):
            self._number += len(kept)
            if events := self._completions(kept):
                yield events
        if is_progress_wanted and self._feed.changes != self._changes:
            self._changes = self._feed.changes
            yield [_event("progress", None)]

    async def _again(self, until: Place) -> AsyncIterator[Sequence[StreamEvent]]:
        assert self._at is not None
        try:
            portion: Portion = await asyncio.to_thread(self._feed.read_again, self._at, until)
        except ResequencerError as error:
            yield [_event("problem", {"problem": printable(str(error)), "since": None})]
            await self._wait()
            return
        self._at = dict(portion.start)
        gaps = [_event("gap", {"gap": each}, self._at) for each in portion.gaps]
        events = self._completions(portion.records)
        self._at = dict(portion.at)
        if all(self._at[number] >= offset for number, offset in until.items()):
            self._until = None
        if gaps or events:
            yield [*gaps, *events]

    def _completions(self, records: Sequence[Completed]) -> list[StreamEvent]:
        assert self._at is not None
        events = []
        for each in records:
            if each.offset < self._at.get(each.partition, 0):
                continue  # It was sent before the listener resumed.
            self._at[each.partition] = each.next_offset
            if (data := self._feed.describe(each, self._sees_values)) is not None:
                events.append(_event("completed", data, self._at))
        return events


def _event(name: str, data: Any, at: Place | None = None) -> StreamEvent:
    return StreamEvent(name, msgspec.json.encode(data), place_text(at) if at else None)
