"""A process is identified by its id and the instant at which it began."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from harness.waiting import wait_until

from servers.process import Process

Launch = Callable[[str], Process]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Start Python with a program; its output is in `log`."""
    launched: list[Process] = []

    def start(program: str) -> Process:
        launched.append(Process.launch([sys.executable, "-Sc", program], tmp_path / "log", os.environ))
        return launched[-1]

    yield start
    for each in launched:
        each.kill()


STAYS = "import time; time.sleep(600)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"

POLITE = "import signal, sys, time; signal.signal(signal.SIGTERM, sys.exit); print('polite', flush=True); time.sleep(600)"

INTERRUPTED = """
import signal, sys, time
def end(*_):
    print("interrupted")
    sys.exit()
signal.signal(signal.SIGINT, end)
print("listens", flush=True)
time.sleep(600)
"""

COUNTING = """
import os, threading
def count():
    while True:
        os.write(1, b".")
for _ in range(4):
    threading.Thread(target=count).start()
"""

PARENT = """
import os, time
child = os.fork()
if child:
    print(child, flush=True)
    time.sleep(600)
os.setsid()
while True:
    os.write(1, b".")
"""


def test_it_is_found_again_by_what_was_written_down(launch: Launch, tmp_path: Path) -> None:
    process = launch(STAYS)
    process.write(tmp_path / "process.json")
    assert Process.read(tmp_path / "process.json") == process
    process.kill()
    assert Process.read(tmp_path / "process.json") is None


def test_another_process_with_its_id_is_neither_it_nor_signalled(launch: Launch) -> None:
    process = launch(STAYS)
    for earlier in (replace(process, began=process.began - 1), replace(process, boot="another boot")):
        assert not earlier.is_running
        assert not earlier.send(signal.SIGKILL)
        earlier.kill()
    assert process.is_running


def test_it_has_ended_even_if_it_was_not_reaped(launch: Launch) -> None:
    process = launch("pass")
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not process.is_running
    assert process.wait(0)
    with pytest.raises(ChildProcessError):  # The process is reaped now.
        os.waitpid(process.pid, os.WNOHANG)


@pytest.mark.slow
def test_no_thread_of_a_paused_one_runs_on(launch: Launch, tmp_path: Path) -> None:
    process = launch(COUNTING)
    for _ in range(20):
        wait_until(lambda: (tmp_path / "log").stat().st_size, "it counts")
        process.pause()
        counted = (tmp_path / "log").stat().st_size
        assert all(counted == (tmp_path / "log").stat().st_size for _ in range(1_000))
        os.truncate(tmp_path / "log", 0)
        process.send(signal.SIGCONT)


def test_a_pause_and_a_kill_reach_its_children(launch: Launch, tmp_path: Path) -> None:
    process, log = launch(PARENT), tmp_path / "log"
    wait_until(lambda: b"\n" in log.read_bytes() and b"." in log.read_bytes(), "both run")
    child = int(log.read_bytes().replace(b".", b""))
    process.pause()
    written = log.stat().st_size
    assert all(written == log.stat().st_size for _ in range(1_000))
    process.resume()
    wait_until(lambda: log.stat().st_size > written, "the child runs again")
    process.kill()
    assert not runs(child)


def test_the_signal_that_ends_it_is_written_down(launch: Launch, tmp_path: Path) -> None:
    launched = Process.launch([sys.executable, "-Sc", INTERRUPTED], tmp_path / "log", os.environ, signal.SIGINT)
    wait_until(lambda: "listens" in (tmp_path / "log").read_text(), "it listens")
    launched.write(tmp_path / "process.json")
    found = Process.read(tmp_path / "process.json")
    assert found is not None
    found.terminate()
    launched.finish(60)
    assert "interrupted" in (tmp_path / "log").read_text()


def test_a_paused_one_ends_when_it_is_ordered_to(launch: Launch, tmp_path: Path) -> None:
    process = launch(POLITE)
    wait_until(lambda: "polite" in (tmp_path / "log").read_text(), "it listens")
    process.pause()
    process.terminate()
    assert process.wait(60)


def test_one_that_does_not_listen_is_killed(launch: Launch, tmp_path: Path) -> None:
    process = launch(STUBBORN)
    wait_until(lambda: "deaf" in (tmp_path / "log").read_text(), "it is deaf")
    process.terminate()
    process.finish(0.05)
    assert not process.is_running


def test_it_is_in_a_session_of_its_own_so_that_the_terminal_does_not_end_it(launch: Launch) -> None:
    process = launch(STAYS)
    assert os.getsid(process.pid) == process.pid


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
