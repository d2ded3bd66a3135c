"""Serves the applications until it is told to stop: the console at one address, the metrics at another."""

import asyncio
import ipaddress
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from notification_service.console.access.client import Client, Network, is_within
from notification_service.console.settings import HttpTls

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

    `on_stop` is called then, and lets answers end that would go on for ever; others have two seconds.
    """
    asyncio.run(_serve(endpoints, lifeline, on_stop))


async def _serve(endpoints: Sequence[Endpoint], lifeline: int | None, on_stop: Callable[[], None]) -> None:
    servers = [_Server(_config(each)) for each in endpoints]

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


def _config(endpoint: Endpoint) -> uvicorn.Config:
    certificate, key = (endpoint.tls.certificate_file, endpoint.tls.key_file) if endpoint.tls else (None, None)
    made = _Config(
        endpoint.application,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
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

    def _close_after(self, before: object) -> None:
        if self.cycle is before and not self.transport.is_closing():
            self.transport.close()
            self.loop.call_later(_HEAD_SECONDS, self._end)

    def _end(self) -> None:
        """End a connection whose client does not read the rest of an answer, or the end of TLS."""
        if self in self.connections:
            self.transport.abort()


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Several servers share the signals of one process, so no server takes them for itself."""
        yield
