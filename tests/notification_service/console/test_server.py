"""The server of the console: clients that begin a request and do not end it are disconnected."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from threading import Thread

import pytest
from harness.waiting import DEADLINE_SECONDS, wait_until
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from notification_service.console import application as server
from notification_service.console.access.settings import Listener, listen

REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@contextmanager
def served(monkeypatch: pytest.MonkeyPatch, *proxies: str) -> Iterator[tuple[str, int]]:
    def hello(request: Request) -> PlainTextResponse:
        del request
        return PlainTextResponse("hello")

    monkeypatch.setattr(server, "_HEAD_SECONDS", 0.5)
    monkeypatch.setattr(server, "_SIGNALS", ())
    bound = listen(Listener(host="127.0.0.1", port=0))
    theirs, ours = os.pipe()
    endpoint = server.Endpoint(Starlette(routes=[Route("/", hello)]), bound, proxies=proxies)
    thread = Thread(target=server.serve, args=([endpoint], theirs))
    thread.start()
    yield bound.getsockname()
    os.close(ours)
    thread.join(DEADLINE_SECONDS)
    os.close(theirs)
    assert not thread.is_alive()


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """A server that gives clients half a second for a request."""
    with served(monkeypatch) as found:
        yield found


@pytest.fixture
def proxied(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """The same behind a proxy at 127.0.0.2."""
    with served(monkeypatch, "127.0.0.2") as found:
        yield found


def received(connection: socket.socket) -> bytes:
    connection.settimeout(DEADLINE_SECONDS)
    return b"".join(iter(lambda: connection.recv(65_536), b""))


@pytest.mark.slow
@pytest.mark.parametrize("sent", [b"", b"G", REQUEST[:-2]])
def test_a_client_that_does_not_end_its_first_request_is_let_go(address: tuple[str, int], sent: bytes) -> None:
    with socket.create_connection(address) as connection:
        connection.sendall(sent)
        assert received(connection) == b""


def connected(address: tuple[str, int], source: str) -> socket.socket:
    """A connection from one of the addresses of this machine."""
    return socket.create_connection(address, source_address=(source, 0))


def answer(address: tuple[str, int], source: str) -> bytes:
    with connected(address, source) as connection:
        connection.settimeout(DEADLINE_SECONDS)
        connection.sendall(REQUEST)
        return connection.recv(65_536)[:12]


@pytest.mark.slow
@pytest.mark.parametrize("sent", [b"", b"G", REQUEST])
def test_connections_of_one_address_that_wait_take_the_console_from_no_other(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(server, "_HEAD_SECONDS", 600)
    with ExitStack() as idle:
        first = idle.enter_context(connected(address, "127.0.0.2"))
        first.sendall(sent)
        for _ in range(server._CONNECTIONS):
            one = idle.enter_context(connected(address, "127.0.0.2"))
            one.sendall(sent)
        with suppress(ConnectionError):
            received(first)  # It was closed for a later one, and so were those between.
        wait_until(lambda: answer(address, "127.0.0.3") == b"HTTP/1.1 200", "others are served")
        assert {answer(address, "127.0.0.3") for _ in range(50)} == {b"HTTP/1.1 200"}
        assert answer(address, "127.0.0.2") == b"HTTP/1.1 200", "its newest connection is kept"


@pytest.mark.slow
def test_the_connections_of_a_proxy_are_not_counted(proxied: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_HEAD_SECONDS", 600)
    with ExitStack() as waiting:
        connections = [waiting.enter_context(connected(proxied, "127.0.0.2")) for _ in range(2 * server._WAITING)]
        for each in connections:
            each.sendall(REQUEST)
            assert each.recv(65_536).startswith(b"HTTP/1.1 200")


@pytest.mark.slow
def test_more_connections_than_the_console_has_descriptors_for_are_not_kept(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_HEAD_SECONDS", 600)
    monkeypatch.setattr(server, "_MAX_OPEN", 2)
    with socket.create_connection(address) as one, socket.create_connection(address) as other:
        one.sendall(REQUEST)
        assert one.recv(65_536).startswith(b"HTTP/1.1 200")
        other.sendall(REQUEST)
        assert other.recv(65_536).startswith(b"HTTP/1.1 200")
        with socket.create_connection(address) as third, suppress(ConnectionError):
            assert received(third) == b""

    def is_answered() -> bool:
        with socket.create_connection(address) as again, suppress(ConnectionError):
            again.sendall(REQUEST)
            return again.recv(65_536).startswith(b"HTTP/1.1 200")
        return False

    wait_until(is_answered, "there is room again")


@pytest.mark.slow
def test_a_client_that_begins_a_second_request_and_does_not_end_it_is_let_go(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as connection:
        connection.sendall(REQUEST + b"G")
        assert received(connection).endswith(b"hello")
