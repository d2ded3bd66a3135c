"""The relay disturbs the traffic as requested. Otherwise a campaign without findings would prove nothing."""

import socket
from collections.abc import Iterator
from random import Random

import pytest

from tests.faults.relay import Relay


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(60)
        yield listening


@pytest.fixture
def relay(server: socket.socket) -> Iterator[Relay]:
    relay = Relay(Random(1), server.getsockname()[1])
    yield relay
    relay.close()


@pytest.fixture
def ends(relay: Relay, server: socket.socket) -> Iterator[tuple[socket.socket, socket.socket]]:
    """The two ends of one connection: the client's and the server's."""
    with socket.create_connection(("127.0.0.1", relay.port), 60) as client:
        accepted, _ = server.accept()
        accepted.settimeout(60)
        with accepted:
            client.sendall(b"x")
            assert accepted.recv(1) == b"x"  # Before that the relay may not know of the connection.
            yield client, accepted


def test_what_is_cut_is_reset_on_both_sides(relay: Relay, ends: tuple[socket.socket, socket.socket]) -> None:
    relay.cut()
    for each in ends:
        with pytest.raises(ConnectionResetError):
            each.recv(100)


def test_what_is_half_closed_can_still_be_written_to(relay: Relay, ends: tuple[socket.socket, socket.socket]) -> None:
    client, server = ends
    relay.half_close()
    assert client.recv(100) == b""
    client.sendall(b"still there")
    assert server.recv(100) == b"still there"


def test_nothing_passes_in_silence_and_all_of_it_afterwards(relay: Relay, ends: tuple[socket.socket, socket.socket]) -> None:
    client, server = ends
    relay.fall_silent()
    client.sendall(b"late")
    server.settimeout(0.05)
    with pytest.raises(TimeoutError):
        server.recv(100)
    relay.mend()
    server.settimeout(60)
    assert server.recv(100) == b"late"
