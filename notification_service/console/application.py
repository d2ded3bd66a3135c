"""The application: all routes of the console, behind the access layer."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from notification_service.console.access.identity import Authenticator
from notification_service.console.access.layer import AccessLayer, BodyTooLarge, Limits
from notification_service.console.access.roles import route
from notification_service.console.context import Console
from notification_service.console.dead_letter_pages import dead_letter_operations, dead_letter_routes
from notification_service.console.delivery import delivery_operations, delivery_routes
from notification_service.console.group_pages import group_operations, group_routes
from notification_service.console.operation import JSON, Operation, route_of
from notification_service.console.order_pages import order_operations, order_routes
from notification_service.console.overview import (
    overview_routes,
    partition_operations,
    partition_routes,
    region_operations,
    region_routes,
    service_operations,
    worker_routes,
)
from notification_service.console.unit_pages import unit_operations, unit_routes, waiting_routes
from resequencer.errors import ResequencerError
from resequencer.printable import printable

_log = logging.getLogger("resequencer.console")


def error_handlers(console: Console) -> Mapping[Any, Callable[[Request, Exception], Response]]:
    """Return the handlers of the application, by exception."""

    def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _answer(console, request, error.status_code, error.detail, error.headers)

    def unavailable(request: Request, error: Exception) -> Response:
        return _answer(console, request, HTTPStatus.SERVICE_UNAVAILABLE, printable(str(error)))

    def unexpected(request: Request, error: Exception) -> Response:
        _log.error("a request for %s failed", printable(request.url.path), exc_info=error)
        return _answer(console, request, HTTPStatus.INTERNAL_SERVER_ERROR, "the console failed; its log says why")

    def too_large(request: Request, error: Exception) -> Response:
        return _answer(console, request, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(error))

    return {HTTPException: refused, BodyTooLarge: too_large, ResequencerError: unavailable, Exception: unexpected}


def _answer(console: Console, request: Request, status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    if request.url.path.startswith("/api/"):
        return JSONResponse({"error": detail}, status, headers)
    if not hasattr(request.state, "identity"):
        return PlainTextResponse(f"{detail}\n", status)
    return console.page(request, "error.html", status, title=HTTPStatus(status).phrase, detail=detail)


DESCRIPTION = Path(__file__).parent / "openapi.json"


def operations_of(console: Console) -> list[Operation]:
    def description(request: Request, query: msgspec.Struct) -> Response:
        del request, query
        return Response(DESCRIPTION.read_bytes(), media_type=JSON)

    return [
        *service_operations(console),
        *unit_operations(console),
        *dead_letter_operations(console),
        *partition_operations(console),
        *region_operations(console),
        *order_operations(console),
        *delivery_operations(console),
        *group_operations(console),
        Operation("/openapi.json", "description", description, JSON, "This description of the API (OpenAPI 3.1)"),
    ]


def api_routes(console: Console) -> list[Route]:
    return [route_of(console, each) for each in operations_of(console)]


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
        state = "" if report is None else f"{report.state} {report.whole.reported_at}"
        yield f"event: {'changed' if state != last else 'same'}\ndata: {int(console.sources.clock.now())}\n\n"
        last = state
        await asyncio.sleep(_EVERY_SECONDS)


STATIC = Path(__file__).parent / "static"


def routes_of(console: Console) -> list[Route]:
    """Return every route, each with the role that it needs (`notification_service.console.access.roles`)."""
    return [
        *overview_routes(console),
        *waiting_routes(console),
        *unit_routes(console),
        *dead_letter_routes(console),
        *order_routes(console),
        *partition_routes(console),
        *delivery_routes(console),
        *group_routes(console),
        *region_routes(console),
        *worker_routes(console),
        *event_routes(console),
        *api_routes(console),
    ]


def make_application(console: Console, authenticator: Authenticator, limits: Limits | None = None) -> Starlette:
    """Make the application; nothing is read before the first request."""
    return Starlette(
        routes=[*routes_of(console), Mount("/static", StaticFiles(directory=STATIC), name="static")],
        middleware=[
            Middleware(
                AccessLayer,
                authenticator=authenticator,
                passed=console.sources.steady_clock.passed,
                limits=limits or Limits(),
                proxies=console.settings.proxy.addresses,
            )
        ],
        exception_handlers=error_handlers(console),
    )
