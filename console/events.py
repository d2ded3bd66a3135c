"""Server-sent events: they tell an open page that there is something new to show."""

import asyncio
from collections.abc import AsyncIterator
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from console.access.roles import route
from console.context import Console

_EVERY_SECONDS = 2
_MOST_LISTENING = 100
"""Each page that listens keeps a connection; half of those that the server has are left for requests."""


def event_routes(console: Console) -> list[Route]:
    """`/events`: an event as often as a report may be new. A page then fetches itself again."""

    listening = _Listening()

    def events(request: Request) -> StreamingResponse:
        if listening.count >= _MOST_LISTENING:
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, "too many pages are open; load this one again to see what is new")
        return StreamingResponse(_ticks(request, console, listening), media_type="text/event-stream")

    return [route("/events", events, name="events")]


class _Listening:
    """How many pages listen now."""

    def __init__(self) -> None:
        self.count = 0


async def _ticks(request: Request, console: Console, listening: _Listening) -> AsyncIterator[str]:
    last = ""
    listening.count += 1
    try:
        while not await request.is_disconnected():
            report = await asyncio.to_thread(console.sources.find_report)
            told = "" if report is None else f"{report.state} {report.whole.reported_at}"
            yield f"event: {'changed' if told != last else 'same'}\ndata: {int(console.sources.clock.now())}\n\n"
            last = told
            await asyncio.sleep(_EVERY_SECONDS)
    finally:
        listening.count -= 1
