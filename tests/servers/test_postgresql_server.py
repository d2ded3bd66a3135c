"""A real PostgreSQL: its data over a kill, its password, and what a pause and a stop do to its clients."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from select import select
from socket import create_server
from typing import Any

import pytest
from harness.waiting import wait_until

from servers import postgresql as account
from servers.postgresql import Account, PostgresqlServer, PostgresqlSettings, find_postgresql, make_place
from servers.server import LOOPBACK, StartFailed, remove_all, stop_all

pytestmark = pytest.mark.slow

OwnServer = Callable[..., Any]
QUICK = PostgresqlSettings(fsync=False)


def test_committed_rows_are_there_after_a_kill_a_stop_and_a_restart(own_server: OwnServer) -> None:
    server = own_server(PostgresqlServer).start()
    assert ask(server.url, "SHOW fsync; SELECT current_user, current_database()") == "on\nresequencer|resequencer"
    ask(server.url, "CREATE TABLE kept (number int); INSERT INTO kept VALUES (1)")
    address = server.url
    with client(server):
        server.kill()
        assert not server.is_ready()
    server.start()
    ask(server.url, "INSERT INTO kept VALUES (2)")
    server.restart()
    assert server.url == address
    assert ask(server.url, "SELECT number FROM kept") == "1\n2"


def test_a_kill_leaves_no_process_and_no_shared_memory(own_server: OwnServer) -> None:
    server = own_server(PostgresqlServer, QUICK).start()
    segment = (server.directory / "data" / "cluster" / "postmaster.pid").read_text().splitlines()[6].split()[1]
    assert segment in segments()
    processes = backends(server)
    with client(server):
        server.kill()
    assert len(processes) > 1
    assert not any(runs(each) for each in processes)
    assert segment not in segments()


def test_a_client_has_to_know_the_password(own_server: OwnServer) -> None:
    server = own_server(PostgresqlServer, PostgresqlSettings(fsync=False, password="it's:a@secret/", max_connections=7)).start()
    assert ask(server.url, "SHOW fsync; SHOW max_connections") == "off\n7"
    wrong = server.url.replace("secret", "guess")
    assert "password authentication failed" in refused(wrong)
    assert "no password supplied" in refused(f"postgresql://resequencer@{server.url.partition('@')[2]}")


def test_while_it_is_paused_no_client_gets_an_answer(own_server: OwnServer) -> None:
    server = own_server(PostgresqlServer, QUICK).start()
    with client(server) as held:
        expect_answer(held, "SELECT 'before';", "before")
        server.pause()
        assert held.stdin is not None
        assert held.stdout is not None
        held.stdin.write("SELECT 'meanwhile';\n")
        held.stdin.flush()
        assert not server.is_ready()  # This takes two seconds, in which the client would have had its answer.
        assert not select([held.stdout], [], [], 0)[0]
        server.resume()
        assert held.stdout.readline() == "meanwhile\n"


def test_it_stops_at_once_though_clients_are_connected_and_it_is_paused(own_server: OwnServer) -> None:
    server = own_server(PostgresqlServer, QUICK).start()
    with client(server) as held:
        expect_answer(held, "SELECT 1;", "1")
        processes = backends(server)
        server.pause()
        assert stop_all(server.directory) == ["."]
        wait_until(lambda: not any(runs(each) for each in processes), "no process is left")
    assert "database system is shut down" in server.log.read_text()


def test_a_port_that_another_process_took_is_refused(own_server: OwnServer) -> None:
    server = own_server(PostgresqlServer, QUICK)
    with create_server((LOOPBACK, server.ports["postgresql"])), pytest.raises(StartFailed, match="another process uses it"):
        server.start()
    assert server.start().is_ready()


def test_an_option_that_it_does_not_take_is_said(own_server: OwnServer) -> None:
    with pytest.raises(StartFailed, match=r"(?s)postgresql ended by itself.*max_connections"):
        own_server(PostgresqlServer, PostgresqlSettings(max_connections=-1)).start()


def test_with_its_directory_go_its_data_wherever_they_are(own_server: OwnServer) -> None:
    server = own_server(PostgresqlServer, QUICK).start()
    data = (server.directory / "data").resolve()
    assert (data / "cluster" / "PG_VERSION").exists()
    remove_all(server.directory)
    assert not server.is_running
    assert not data.exists()
    assert not server.directory.exists()


def test_data_that_are_gone_are_begun_anew_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account, "ELSEWHERE", tmp_path / "elsewhere")
    link, this_user = tmp_path / "data", Account(os.getuid(), os.getgid())
    first = make_place(link, this_user)
    assert make_place(link, this_user) == first
    first.rmdir()
    second = make_place(link, this_user)
    assert second.is_dir()
    assert [second] == [*(tmp_path / "elsewhere").iterdir()]


@contextmanager
def client(server: PostgresqlServer) -> Iterator["subprocess.Popen[str]"]:
    """A client that stays connected. It may be cut off."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([psql(), "-XAtq", server.url], text=True, **pipes) as process:  # type: ignore[call-overload]
        try:
            expect_answer(process, "SELECT 'connected';", "connected")
            yield process
        finally:
            process.kill()


def expect_answer(client: "subprocess.Popen[str]", statement: str, answer: str) -> None:
    assert client.stdin is not None
    assert client.stdout is not None
    client.stdin.write(f"{statement}\n")
    client.stdin.flush()
    assert client.stdout.readline() == f"{answer}\n"


def ask(url: str, statements: str) -> str:
    done = subprocess.run([psql(), "-XAtq", url, "-c", statements], capture_output=True, text=True, check=True, timeout=180)
    return done.stdout.strip()


def refused(url: str) -> str:
    done = subprocess.run([psql(), "-XAtqw", url, "-c", "SELECT 1"], capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode
    return done.stderr


def psql() -> str:
    return str(find_postgresql() / "psql")


def backends(server: PostgresqlServer) -> list[int]:
    """The process and its children."""
    process = server.process
    assert process is not None
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [process.pid, *map(int, children)]


def runs(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def segments() -> set[str]:
    """The ids of all System V segments."""
    return {line.split()[1] for line in Path("/proc/sysvipc/shm").read_text().splitlines()}
