"""The application, which is all routes of the console behind the access layer, and the server of it and of the metrics."""

import asyncio
import ipaddress
import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from notification_service.console.access.identity import Authenticator, Client, Network, is_within
from notification_service.console.access.layer import AccessLayer, BodyTooLarge, Limits, route
from notification_service.console.access.settings import HttpTls
from notification_service.console.context import JSON, Console, Operation, route_of
from notification_service.console.dead_letter_pages import dead_letter_operations, dead_letter_routes
from notification_service.console.delivery import delivery_operations, delivery_routes
from notification_service.console.group_pages import group_operations, group_routes
from notification_service.console.order_pages import order_operations, order_routes
from notification_service.console.overview import (
    overview_routes,
    partition_operations,
    partition_routes,
    service_operations,
    worker_routes,
)
from notification_service.console.region_pages import region_operations, region_routes
from notification_service.console.stores.pages import socket_routes, store_operations, store_routes
from notification_service.console.unit_pages import find_operations, find_routes, unit_operations, unit_routes
from notification_service.console.waiting.bulk_orders import bulk_order_routes
from notification_service.console.waiting.pages import waiting_routes
from resequencer.errors import ResequencerError
from resequencer.printable import printable

if TYPE_CHECKING:
    import h11

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
    is_final = status < HTTPStatus.INTERNAL_SERVER_ERROR  # Loading it again would not help.
    return console.page(request, "error.html", status, title=HTTPStatus(status).phrase, detail=detail, is_final=is_final)


DESCRIPTION = Path(__file__).parent / "openapi.json"


def operations_of(console: Console) -> list[Operation]:
    def description(request: Request, query: msgspec.Struct) -> Response:
        del request, query
        return Response(DESCRIPTION.read_bytes(), media_type=JSON)

    return [
        *service_operations(console),
        *unit_operations(console),
        *find_operations(console),
        *dead_letter_operations(console),
        *partition_operations(console),
        *region_operations(console),
        *order_operations(console),
        *delivery_operations(console),
        *group_operations(console),
        *store_operations(console),
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
    """Return every route, each with the role that it needs."""
    return [
        *overview_routes(console),
        *waiting_routes(console),
        *unit_routes(console),
        *find_routes(console),
        *dead_letter_routes(console),
        *order_routes(console),
        *bulk_order_routes(console),
        *partition_routes(console),
        *delivery_routes(console),
        *group_routes(console),
        *store_routes(console),
        *region_routes(console),
        *worker_routes(console),
        *event_routes(console),
        *api_routes(console),
    ]


def make_application(console: Console, authenticator: Authenticator, limits: Limits | None = None) -> Starlette:
    """Make the application; nothing is read before the first request."""
    return Starlette(
        routes=[*routes_of(console), *socket_routes(console), Mount("/static", StaticFiles(directory=STATIC), name="static")],
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


_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_CONNECTIONS = 200
_MAX_OPEN = 2 * _CONNECTIONS
_DRAIN_SECONDS = 2
_HEAD_SECONDS = 10
_WAITING = 20
"""How many connections of one address may wait for a request: who opens others as fast as they are closed has all otherwise."""


class Endpoint(NamedTuple):
    """An application and the socket that listens for it; with `tls` it speaks https.

    `proxies` are the networks whose connections are those of many clients.
    """

    application: ASGIApp
    bound: socket.socket
    tls: HttpTls | None = None
    proxies: Sequence[str] = ()


def serve(endpoints: Sequence[Endpoint], lifeline: int | None = None, on_stop: Callable[[], None] = lambda: None) -> None:
    """Serve until SIGTERM or SIGINT, or until the other end of the pipe `lifeline` is closed.

    `on_stop` is called then, and ends answers that have no end of their own; others have two seconds.
    """
    asyncio.run(_serve(endpoints, lifeline, on_stop))


async def _serve(endpoints: Sequence[Endpoint], lifeline: int | None, on_stop: Callable[[], None]) -> None:
    servers = [server_of(each) for each in endpoints]

    loop = asyncio.get_running_loop()

    def stop() -> None:
        if lifeline is not None:
            loop.remove_reader(lifeline)  # Its end would be reported again and again.
        on_stop()
        for each in servers:
            each.should_exit = True

    for number in _SIGNALS:
        loop.add_signal_handler(number, stop)
    if lifeline is not None:
        loop.add_reader(lifeline, stop)
    await asyncio.gather(*(server.serve([each.bound]) for server, each in zip(servers, endpoints, strict=True)))


def server_of(endpoint: Endpoint) -> uvicorn.Server:
    """Return the server of an endpoint, which leaves signals to its user."""
    return _Server(_config(endpoint))


def _config(endpoint: Endpoint) -> uvicorn.Config:
    certificate, key = (endpoint.tls.certificate_file, endpoint.tls.key_file) if endpoint.tls else (None, None)
    made = _Config(
        endpoint.application,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws=_BoundedSocket,
        ws_max_size=_SOCKET_BYTES,
        ws_per_message_deflate=False,
        http=_ImpatientProtocol,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=_CONNECTIONS,
        timeout_graceful_shutdown=_DRAIN_SECONDS,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
    made.proxies = [ipaddress.ip_network(each) for each in endpoint.proxies]
    return made


class _Config(uvicorn.Config):
    proxies: Sequence[Network] = ()


class _ImpatientProtocol(H11Protocol):
    """Closes a connection on which no whole request head came in time: slow clients would use up all connections.

    Of more than `_WAITING` that wait for one from the same address, the one that has waited longest is closed at once.
    """

    config: _Config
    cycle: RequestResponseCycle | None  # type: ignore[assignment]
    connections: set["_ImpatientProtocol"]  # type: ignore[assignment]
    waits_since = 0.0
    is_socket = False
    network: str | None = None
    """What connections are counted by; None: a proxy, whose connections are not counted."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        if len(self.connections) > _MAX_OPEN:
            self.transport.abort()  # Answers with 503 need descriptors, too, and the console needs some for its files.
        address = self.client[0] if self.client else ""
        self.network = None if is_within(address, self.config.proxies) else Client(address).network
        self._expect_request(None)

    def on_response_complete(self) -> None:
        answered = self.cycle
        super().on_response_complete()
        self._expect_request(answered)

    def _expect_request(self, before: object) -> None:
        """Close the connection if no request follows the one `before` in time. Its first byte alone keeps it open otherwise."""
        self.waits_since = self.loop.time()
        self.loop.call_later(_HEAD_SECONDS, self._close_after, before)
        if self.network is not None:
            waiting = [each for each in self.connections if each.is_waiting and each.network == self.network]
            if len(waiting) > _WAITING:
                min(waiting, key=lambda each: each.waits_since).transport.abort()

    @property
    def is_waiting(self) -> bool:
        """Whether the next thing is a request of the client."""
        return (self.cycle is None or self.cycle.response_complete) and not self.transport.is_closing()

    def handle_websocket_upgrade(self, event: "h11.Request") -> None:
        self.is_socket = True
        super().handle_websocket_upgrade(event)
        taken_over = self.transport.get_protocol()
        if isinstance(taken_over, _BoundedSocket) and not taken_over.handshake_initiated:
            self.transport.abort()  # It is no handshake, and nothing else would end it.

    def _close_after(self, before: object) -> None:
        if self.cycle is before and not self.is_socket and not self.transport.is_closing():
            self.transport.close()
            self.loop.call_later(_HEAD_SECONDS, self._end)

    def _end(self) -> None:
        """End a connection whose client does not read an answer to its end, or the end of TLS."""
        if self in self.connections:
            self.transport.abort()


_SOCKET_BYTES = 1_024
_SEND_SECONDS = 20


class _BoundedSocket(WebSocketsSansIOProtocol):
    """Ends a web socket whose client takes nothing, and keeps no more for it than one message and the transport's 64 KiB."""

    is_waiting, network = False, None
    """As of `_ImpatientProtocol`, which it takes over from: its connection is counted by the application."""

    def data_received(self, data: bytes) -> None:
        if self.handshake_initiated and not self.handshake_complete:
            self.transport.abort()  # Frames come before the answer to its handshake.
        else:
            super().data_received(data)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.transport.pause_reading()  # Who sends pings and reads no pongs would fill the memory.

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.read_paused:
            self.transport.resume_reading()

    async def send(self, message: ASGISendEvent) -> None:
        try:
            await asyncio.wait_for(self.writable.wait(), _SEND_SECONDS)
        except TimeoutError:
            _log.info("a client that took nothing by its web socket for %d s was cut off; it resumes where it was", _SEND_SECONDS)
            self.close_sent = True
            self.conn.fail(1013, "you take nothing; listen again behind the last id")
            self.transport.write(b"".join(self.conn.data_to_send()))  # It finds the reason if it reads after all.
            raise ClientDisconnected from None
        await super().send(message)

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        super().on_task_complete(task)
        self.loop.call_later(_HEAD_SECONDS, self.transport.abort)

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.transport.abort()


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Several servers share the signals of one process, so no server takes them for itself."""
        yield
