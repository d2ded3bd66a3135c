"""The start of servers: a second start, and a start that fails."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from servers.redis import RedisServer, RedisSettings
from servers.server import LOOPBACK, NotRunning, StartFailed, forget_taken_ports, stop_all

pytestmark = pytest.mark.slow

OwnServer = Callable[..., Any]


def test_starting_again_what_runs_changes_nothing(own_server: OwnServer) -> None:
    server = own_server(RedisServer).start()
    process = server.process
    assert server.start().process == process


def test_the_same_directory_means_the_same_server(own_server: OwnServer) -> None:
    server = own_server(RedisServer).start()
    same = RedisServer(server.directory)
    assert same.url == server.url
    same.stop()
    assert not server.is_running


def test_a_restart_is_another_process_on_the_same_port(own_server: OwnServer) -> None:
    server = own_server(RedisServer).start()
    process, address = server.process, server.url
    server.restart()
    assert server.process != process
    assert server.url == address
    assert server.is_ready()


def test_a_paused_server_can_be_stopped(own_server: OwnServer) -> None:
    server = own_server(RedisServer).start()
    server.pause()
    server.stop()
    assert not server.is_running
    server.stop()  # A second stop does no harm.


def test_what_does_not_run_cannot_be_paused(own_server: OwnServer) -> None:
    with pytest.raises(NotRunning, match="does not run; start it first"):
        own_server(RedisServer).pause()


def test_a_server_that_ends_at_its_start_says_why(own_server: OwnServer) -> None:
    server = own_server(RedisServer, RedisSettings(max_memory="nonsense"))
    with pytest.raises(StartFailed, match=r"(?s)redis ended by itself; from .*server.log:.*argument must be a memory value"):
        server.start()


def test_a_server_that_does_not_answer_in_time_is_killed(own_server: OwnServer) -> None:
    server = own_server(RedisServer, RedisSettings(replica_of=1))
    with pytest.raises(StartFailed, match=r"did not answer within 0\.3 s"):
        server.start(seconds=0.3)
    assert not server.is_running


def test_a_wanted_port_that_is_taken_is_left_alone(own_server: OwnServer, tmp_path: Path) -> None:
    taken = own_server(RedisServer).start().ports["redis"]
    server = RedisServer(tmp_path, wanted={"redis": taken})
    assert server.ports["redis"] != taken
    assert RedisServer(tmp_path, wanted={"redis": 1}).ports == server.ports  # Ports stay as they were chosen.
    assert not forget_taken_ports(tmp_path)
    assert RedisServer(tmp_path, wanted={"redis": 1}).ports == server.ports
    with socket.create_server((LOOPBACK, server.ports["redis"])):
        assert forget_taken_ports(tmp_path)
    assert RedisServer(tmp_path, wanted=server.ports).ports == server.ports


def test_a_server_whose_port_another_program_took_meanwhile_is_not_started(own_server: OwnServer) -> None:
    server = own_server(RedisServer).start()
    server.stop()
    port = server.ports["redis"]
    with socket.create_server((LOOPBACK, port)), pytest.raises(StartFailed, match=f"cannot listen on port {port}, another"):
        server.start()
    server.start()


def test_ports_of_a_running_server_are_not_forgotten(own_server: OwnServer) -> None:
    server = own_server(RedisServer).start()
    assert not forget_taken_ports(server.directory)
    assert RedisServer(server.directory).url == server.url == f"redis://{LOOPBACK}:{server.ports['redis']}/0"


def test_all_servers_below_a_directory_are_stopped_by_a_program_that_did_not_start_them(tmp_path: Path) -> None:
    servers = [RedisServer(tmp_path / name).start() for name in ("one", "two")]
    servers[0].pause()
    assert stop_all(tmp_path) == ["one", "two"]
    assert not any(each.is_running for each in servers)
    assert stop_all(tmp_path) == []
