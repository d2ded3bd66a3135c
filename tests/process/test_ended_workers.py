"""A record that ends its worker: after three exits it becomes a dead letter, with any storage."""

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from harness.nightly import at_night
from harness.processes.operated_daemon import Daemon
from harness.processes.operated_service import NOTIFICATION, RESEQUENCER, OperatedService
from harness.waiting import wait_until

from resequencer.notification import notification_id

pytestmark = pytest.mark.slow
AT_NIGHT = pytest.mark.nightly("ended-workers")

TARGET = '''
import asyncio
import ctypes
import json
import os
import time
from pathlib import Path

from resequencer.errors import TransientError

WAYS = {
    "exit": lambda: os._exit(3),
    "good exit": lambda: os._exit(0),
    "segfault": lambda: ctypes.string_at(0),
    "abort": os.abort,
    "sleep": lambda: time.sleep(3_600),
    "hold the interpreter": lambda: ctypes.PyDLL(None).pause(),
    "wait": lambda: wait(),
}


def wait():
    while not Path("open").exists():
        time.sleep(0.01)


def report(mapping):
    """Does what is written in `way` with the notification that is written in `killers`."""
    made = mapping["report"]
    if made["CstmrPmtStsRpt"]["GrpHdr"]["MsgId"] in Path("killers").read_text().split():
        with Path("calls").open("a") as calls:
            Path("worker").write_text(str(os.getpid()))
            calls.write("x")
        way = Path("way").read_text()
        if way.startswith("late "):
            way = way.removeprefix("late ")
            if len(Path("calls").read_text()) == 1:
                raise TransientError("not yet")
        WAYS[way]()
    return json.dumps(made).encode()


async def report_beside(mapping):
    await asyncio.to_thread(int)
    return report(mapping)
'''

UNITS = [f"uow-{number}" for number in range(1, 6)]
KILLER = "uow-3"


@pytest.fixture
def deadly(new_daemon: Callable[..., Daemon]) -> Callable[..., Daemon]:
    """A service whose target type ends its worker in this `way` on the second event of uow-3."""

    def make(way: str, *overrides: str) -> Daemon:
        hangs = way.endswith(("sleep", "hold the interpreter"))
        limits = (f"{RESEQUENCER}.handling-limit={'2s' if hangs else '60s'}", f"{RESEQUENCER}.processing-timeout=200ms")
        daemon = new_daemon(f"{NOTIFICATION}.target-type=deadly_target:report", *limits, *overrides)
        directory = daemon.service.directory
        (directory / "deadly_target.py").write_text(TARGET, encoding="utf-8")
        kill_with(daemon, (KILLER, 2))
        (directory / "way").write_text(way)
        return daemon

    return make


def kill_with(daemon: Daemon, *events: tuple[str, int]) -> None:
    """Set the envelopes that kill a worker from now on, each as unit and sequence."""
    identities = [notification_id(unit, f"{unit}#{sequence}", 0) for unit, sequence in events]
    (daemon.service.directory / "killers").write_text(" ".join(identities))


def calls(daemon: Daemon) -> int:
    file = daemon.service.directory / "calls"
    return file.stat().st_size if file.exists() else 0


def suspects(daemon: Daemon) -> list[Path]:
    return sorted((daemon.service.run_directory / "suspects").glob("*"))


def assert_only_the_killer_was_set_aside(daemon: Daemon, *, of_killer: tuple[int, ...] = (1, 3)) -> str:
    """Check that the units of all other records have left exactly once and in order; return the dead letter's source position."""
    service = daemon.service
    left = sum(len(of_killer) if unit == KILLER else 3 for unit in UNITS)
    wait_until(lambda: len(service.dead_letters()) >= 1 and len(service.notifications()) >= left, "all leave")
    (letter,) = service.dead_letters()
    assert letter["headers"]["dead-letter-reason"] == "ended-its-worker"
    assert {unit: tuple(service.sequences(unit)) for unit in UNITS} == {
        unit: of_killer if unit == KILLER else (1, 2, 3) for unit in UNITS
    }
    assert not any("possible-duplicate" in each["headers"] for each in service.notifications())
    position: str = letter["headers"]["dead-letter-source-position"]
    wait_until(lambda: not suspects(daemon), "what is known of it is forgotten")
    return position


HUNG = "hung for more than 2 s (handling-limit) and was ended at "


@pytest.mark.parametrize(
    ("way", "cause"),
    [
        ("segfault", "was killed by SIGSEGV at "),
        ("hold the interpreter", HUNG),
        *at_night(
            "ended-workers",
            ("exit", "ended with 3 at "),
            ("good exit", "ended with 0 at "),
            ("abort", "was killed by SIGABRT at "),
            ("sleep", HUNG),
        ),
    ],
)
def test_a_record_that_ends_its_worker_is_set_aside_after_three_exits_and_its_neighbours_leave_once(
    deadly: Callable[..., Daemon], way: str, cause: str
) -> None:
    daemon = deadly(way)
    for sequence in (1, 2, 3):
        for unit in UNITS:
            daemon.service.tell(unit, sequence)
    daemon.start()
    position = assert_only_the_killer_was_set_aside(daemon)
    assert calls(daemon) == 3
    assert position.startswith("IPF_PROCESSING_DATA-0@")
    log = daemon.log_file.read_text()
    assert log.count(cause) >= 3
    assert f"while handling {position} of unit 'uow-3'" in log
    assert f"unit={KILLER} partition=IPF_PROCESSING_DATA-0 position={position}" in log
    if "exit" not in way:
        assert 'deadly_target.py", line' in log, "the stack is in the log"
    (letter,) = daemon.service.dead_letters()
    assert cause in letter["headers"]["dead-letter-error"]
    status = daemon.service.verb("status").stdout
    assert f"{position} of unit 'uow-3'" in status, status
    assert "the record becomes a dead letter ended-its-worker" in status


@AT_NIGHT
@pytest.mark.parametrize("threads", [0, 3], ids=["a coroutine", "in threads"])
def test_so_is_one_whose_target_type_waits(deadly: Callable[..., Daemon], threads: int) -> None:
    target = "deadly_target:report" if threads else "deadly_target:report_beside"
    own = (f"{NOTIFICATION}.target-type={target}", f"{RESEQUENCER}.handling-threads={threads}")
    daemon = deadly("segfault", *own, f"{RESEQUENCER}.processing-timeout=30s")
    for sequence in (1, 2, 3):
        for unit in UNITS:
            daemon.service.tell(unit, sequence)
    daemon.start()
    position = assert_only_the_killer_was_set_aside(daemon)
    assert calls(daemon) == 3 or threads, "in threads the first exit may count for none"
    assert daemon.log_file.read_text().count(f"while handling {position} of unit 'uow-3' (exit ") >= 3


@AT_NIGHT
@pytest.mark.parametrize("storage", ["embedded", "none"])
@pytest.mark.parametrize("when", ["it was stashed", "it is tried again", "its deadline has come"])
def test_so_is_one_that_comes_out_of_the_stash(deadly: Callable[..., Daemon], storage: str, when: str) -> None:
    way = "late exit" if when == "it is tried again" else "exit"
    daemon = deadly(way, f"{RESEQUENCER}.storage-type={storage}", f"{RESEQUENCER}.stash-timeout=2s")
    for unit in UNITS:
        if unit != KILLER:
            daemon.service.tell(unit, 1, 2, 3)
    if when == "it was stashed":
        daemon.service.tell(KILLER, 2, 3, 1)
        expected: tuple[int, ...] = (1, 3)
    elif when == "it is tried again":
        daemon.service.tell(KILLER, 1, 2, 3)
        expected = (1, 3)
    else:
        daemon.service.tell(KILLER, 2, 3)
        expected = (3,)
    daemon.start()
    assert_only_the_killer_was_set_aside(daemon, of_killer=expected)
    assert calls(daemon) == (4 if when == "it is tried again" else 3)


@AT_NIGHT
def test_exits_count_over_a_restart_of_the_service_and_never_towards_its_limit(deadly: Callable[..., Daemon]) -> None:
    daemon = deadly("exit")
    kill_with(daemon, *((KILLER, sequence) for sequence in (1, 2, 3)), ("uow-4", 1))
    for unit in UNITS:
        daemon.service.tell(unit, 1, 2, 3)
    with suppress(AssertionError):
        daemon.start()  # It may still be ending workers when the time for a start is over.
    wait_until(lambda: calls(daemon) >= 5, "the second one kills")
    daemon.service.verb("stop")
    daemon.start()
    wait_until(lambda: len(daemon.service.notifications()) == 11, "all others leave")
    assert {each["headers"]["dead-letter-reason"] for each in daemon.service.dead_letters()} == {"ended-its-worker"}
    assert len(daemon.service.dead_letters()) == 4
    assert calls(daemon) == 12


@AT_NIGHT
def test_a_worker_that_is_killed_ten_times_while_it_handles_sets_nothing_aside(deadly: Callable[..., Daemon]) -> None:
    daemon = deadly("wait", f"{RESEQUENCER}.handling-limit=60s")
    directory = daemon.service.directory
    daemon.start()
    for unit in UNITS:
        daemon.service.tell(unit, 1, 2, 3)
    kill_while_it_handles(daemon, *range(1, 6))
    wait_until(lambda: calls(daemon) == 6, "it is handled")
    os.kill(daemon.supervisor, signal.SIGKILL)  # One supervisor gives up at ten exits within a minute.
    kill_while_it_handles(daemon, 6)
    daemon.service.begin_verb("start")
    kill_while_it_handles(daemon, *range(7, 11))
    (directory / "open").touch()
    wait_until(lambda: len(daemon.service.notifications()) == 15, "all leave")
    assert calls(daemon) == 11
    assert (suspects(daemon), daemon.service.dead_letters()) == ([], [])


def kill_while_it_handles(daemon: Daemon, *numbers: int) -> None:
    """Kill the workers that make these calls of the target type, counted from 1."""
    for number in numbers:
        wait_until(lambda so_many=number: calls(daemon) == so_many, "it is handled")
        os.kill(int((daemon.service.directory / "worker").read_text()), signal.SIGKILL)


# In the foreground


@AT_NIGHT
def test_in_the_foreground_a_worker_that_died_of_a_record_is_started_again_until_the_record_is_set_aside(
    deadly: Callable[..., Daemon],
) -> None:
    service = deadly("exit").service
    for unit in UNITS:
        service.tell(unit, 1, 2, 3)
    service.start(alone=False)
    wait_until(lambda: len(service.notifications()) == 14 and len(service.dead_letters()) == 1, "all leave")
    assert service.dead_letters()[0]["headers"]["dead-letter-reason"] == "ended-its-worker"
    assert service.log.count("while handling IPF_PROCESSING_DATA-0@") == 3
    assert service.stop() == 0
    assert service.log.rstrip().endswith("drained")


@pytest.mark.parametrize("number", [signal.SIGSEGV, *at_night("ended-workers", signal.SIGKILL)])
def test_in_the_foreground_it_ends_like_a_worker_that_died_of_nothing_in_particular(
    service: OperatedService, number: signal.Signals
) -> None:
    service.start(alone=False)
    service.wait_for_report(lambda report: report.state == "ready", "ready")
    os.kill(worker_of(service), number)
    assert service.wait() == 128 + number


def test_in_the_foreground_a_second_signal_ends_it_at_once(deadly: Callable[..., Daemon]) -> None:
    service = deadly("wait", f"{RESEQUENCER}.handling-limit=10m").service
    service.tell(KILLER, 1, 2)
    service.start(alone=False)
    wait_until(lambda: (service.directory / "calls").exists(), "it is handled")
    service.signal(signal.SIGTERM)
    wait_until(service.has_ended_after(signal.SIGTERM), "its end")
    assert service.wait() == 128 + signal.SIGTERM


def test_in_the_foreground_a_stop_while_it_starts_is_a_stop(service: OperatedService) -> None:
    service.start(alone=False)
    wait_until(lambda: (service.run_directory / "lock").exists(), "the lock")
    assert service.stop() == 0


def test_in_the_foreground_the_next_one_waits_for_the_worker_of_one_that_was_killed(service: OperatedService) -> None:
    service.start(alone=False)
    service.wait_for_report(lambda report: report.state == "ready", "ready")
    service.kill()
    service.start(alone=False)
    service.tell("uow-1", 1)
    service.wait_for("uow-1", 1)
    assert service.stop() == 0


def worker_of(service: OperatedService) -> int:
    assert service.process is not None
    pid = service.process.pid
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
