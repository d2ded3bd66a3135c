"""Servers end with the processes that use them."""

import fcntl
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.waiting import wait_until

from servers.lease import clear_leftovers, leased
from servers.process import Process

HOLDER = """
import os, sys, time
from pathlib import Path
from servers.lease import leased
from servers.process import Process
with leased(Path(sys.argv[1])) as directory:
    started = directory / "server" / "process.json"
    if not started.exists():
        started.parent.mkdir()
        Process.launch([sys.executable, "-Sc", "import time; time.sleep(600)"], directory / "log", os.environ).write(started)
    print("holds", flush=True)
    sys.stdin.read()
"""

Hold = Callable[[], "subprocess.Popen[str]"]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def hold(directory: Path) -> Iterator[Hold]:
    """Start a process that holds a lease while its standard input is open, and that starts a server."""
    holders: list[subprocess.Popen[str]] = []

    def start() -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", HOLDER, str(directory)]
        holders.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        assert holders[-1].stdout is not None
        assert holders[-1].stdout.readline() == "holds\n"
        return holders[-1]

    yield start
    for each in holders:
        each.communicate()
    wait_until(lambda: not directory.exists(), "the directory is cleared away")


def server_in(directory: Path) -> Process:
    process = Process.read(directory / "server" / "process.json")
    assert process is not None
    return process


@pytest.mark.slow
def test_the_server_ends_and_its_directory_goes_when_the_last_holder_has_left(directory: Path, hold: Hold) -> None:
    first, second = hold(), hold()
    server = server_in(directory)
    first.communicate()
    assert server.is_running
    second.communicate()
    wait_until(lambda: not server.is_running and not directory.exists(), "it is cleared away")


def test_a_holder_that_is_killed_holds_nothing_any_more(directory: Path, hold: Hold) -> None:
    holder = hold()
    server = server_in(directory)
    holder.send_signal(signal.SIGKILL)
    wait_until(lambda: not server.is_running and not directory.exists(), "it is cleared away")


@pytest.mark.slow
def test_a_run_that_comes_while_it_is_cleared_away_begins_anew(directory: Path, hold: Hold) -> None:
    for _ in range(3):
        hold().communicate()
        with leased(directory):
            assert directory.is_dir()


def test_a_lease_on_what_was_just_cleared_away_is_taken_again(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = directory.with_name("run.lease")
    lock, removals = fcntl.flock, iter([file.unlink])

    def removed_before_it_is_locked(descriptor: int, mode: int) -> None:
        next(removals, lambda: None)()
        lock(descriptor, mode)

    monkeypatch.setattr(fcntl, "flock", removed_before_it_is_locked)
    with leased(directory):
        assert file.exists()


def test_what_a_killed_keeper_left_is_cleared_away_by_the_next_run(directory: Path) -> None:
    (directory / "server").mkdir(parents=True)
    directory.with_name("run.lease").touch()
    clear_leftovers(directory.parent)
    assert not directory.exists()


def test_what_is_in_use_is_no_leftover(directory: Path, hold: Hold) -> None:
    hold()
    clear_leftovers(directory.parent)
    assert server_in(directory).is_running
