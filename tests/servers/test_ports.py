"""Ports of servers: who holds one keeps others away from it, also while no server listens there."""

import socket

import pytest

from servers.server import LOOPBACK, hold_port, is_free


def test_a_server_can_listen_on_a_port_that_is_held_and_nobody_listens_there_before() -> None:
    with hold_port() as held:
        port = held.getsockname()[1]
        assert is_free(port)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((LOOPBACK, port))
        with socket.create_server((LOOPBACK, port)):
            assert not is_free(port)
        assert is_free(port)


def test_a_port_that_is_held_is_chosen_by_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    with hold_port() as held:
        port = held.getsockname()[1]
        monkeypatch.setattr("servers.server._LOWEST", port)
        monkeypatch.setattr("servers.server._BEYOND", port + 1)
        with pytest.raises(OSError, match="no free port"):
            hold_port()
    with hold_port() as again:
        assert again.getsockname()[1] == port


def test_a_wanted_port_is_taken_unless_a_server_listens_there() -> None:
    with hold_port() as held:
        port = held.getsockname()[1]
        with hold_port(port) as same:
            assert same.getsockname()[1] == port
        with socket.create_server((LOOPBACK, port)), hold_port(port) as other:
            assert other.getsockname()[1] != port
