"""Server-sent events: they tell an open page that there is something new to show."""

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from notification_service.console.access.roles import route
from notification_service.console.context import Console

_EVERY_SECONDS = 2


def event_routes(console: Console) -> list[Route]:
    """`/events`: an event as often as a report may be new. A page then fetches itself again."""

    def events(request: Request) -> StreamingResponse:
        console.listening.check()
        return StreamingResponse(console.listening.counted(_ticks(request, console)), media_type="text/event-stream")

    return [route("/events", events, name="events")]


async def _ticks(request: Request, console: Console) -> AsyncIterator[str]:
    last = ""
    while not await request.is_disconnected():
        report = await asyncio.to_thread(console.sources.find_report)
        told = "" if report is None else f"{report.state} {report.whole.reported_at}"
        yield f"event: {'changed' if told != last else 'same'}\ndata: {int(console.sources.clock.now())}\n\n"
        last = told
        await asyncio.sleep(_EVERY_SECONDS)
