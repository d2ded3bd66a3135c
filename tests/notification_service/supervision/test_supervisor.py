"""The supervisor with tiny processes as workers: single slots, all slots together, and workers with real calls at the end."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from time import monotonic

import pytest
from harness.driving import Envelopes
from harness.nightly import at_night
from harness.waiting import wait_until

from notification_service.configuration.sections import LogFormat, Logging
from notification_service.status.file import StatusFile
from notification_service.status.report import Identity, State
from notification_service.supervision import exit_rules
from notification_service.supervision.exit_code import ExitCode
from notification_service.supervision.exit_rules import RestartPolicy
from notification_service.supervision.exits import Exits
from notification_service.supervision.in_flight_memory import InFlightMemory
from notification_service.supervision.service_log import ServiceLog
from notification_service.supervision.supervisor import Supervisor
from notification_service.supervision.suspects import Suspects
from notification_service.supervision.system_clock import SystemClock
from notification_service.supervision.watchdog import Watchdog
from notification_service.supervision.worker_slot import WorkerSlot
from resequencer.in_flight import CallKind

BEGIN = """
import os, select, sys
slot, lifeline, in_flight = int(sys.argv[2]), int(sys.argv[-1]), int(sys.argv[4])
runs = f"runs-{slot}"
with open(runs, "ab") as file:
    file.write(b"x")
run = os.path.getsize(runs)
print("begun", run, flush=True)
def take(page="page"):
    with open(page, "rb") as file:
        os.pwrite(in_flight, file.read(), 0)
def wait_for_drain():
    waits = select.poll()  # The number of the descriptor may be one that `select` does not know.
    waits.register(lifeline, select.POLLIN)
    waits.poll()
def drain():
    wait_for_drain()
    print("drained", flush=True)
"""
"""The beginning of a worker: its slot, lifeline and in-flight memory. `run` counts the slot's workers from 1;
`take` puts an envelope in flight.
"""

pytestmark = pytest.mark.usefixtures("logging_as_it_was")

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGCHLD)


class Service:
    """Slots whose workers execute `run`; the log is a file beside them. A call may take `limit_ms`."""

    def __init__(self, directory: Path, run: str, count: int, limit_ms: int, pause_ms: int) -> None:
        self.directory = directory
        self.supervisor: Supervisor | None = None
        clock = SystemClock()
        log = ServiceLog(directory, Logging(LogFormat.TEXT, "info"))
        exits = [
            Exits(StatusFile(directory, slot), Identity(os.getpid(), "fake", clock.now(), slot=slot, worker_count=count), clock)
            for slot in range(count)
        ]
        command, self.suspects = [sys.executable, "-S", "-c", BEGIN + run], Suspects(directory)
        self.slots = [
            WorkerSlot(command, (), log, each, Watchdog(self.suspects, limit_ms), RestartPolicy(pause_ms)) for each in exits
        ]
        (directory / "page").write_bytes(_page())
        (directory / "three").write_bytes(_page_of_three())

    def run(
        self,
        until: Callable[[], object] | None = None,
        *signals: signal.Signals,
        starts_again: bool = True,
        has_signal: Callable[[], bool] = lambda: False,
    ) -> int:
        """Run the supervisor. It gets the first signal once `until` is true, and the others while it drains."""
        watcher = Thread(target=self._watch, args=(until, signals))
        watcher.start()
        try:
            self.supervisor = Supervisor(self.slots, starts_again=starts_again)
            return self.supervisor.run(has_signal=has_signal)
        finally:
            watcher.join()

    @property
    def log(self) -> str:
        file = self.directory / "service.log"
        return file.read_text() if file.exists() else ""

    def runs(self, slot: int) -> int:
        file = self.directory / f"runs-{slot}"
        return file.stat().st_size if file.exists() else 0

    def _watch(self, until: Callable[[], object] | None, signals: tuple[signal.Signals, ...]) -> None:
        if until is None:
            return
        wait_until(until, "what the test waits for")
        for each in signals:
            os.kill(os.getpid(), each)
            wait_until(lambda: all(slot._child._lifeline is None for slot in self.slots), "it drains")


@pytest.fixture
def new_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Service]]:
    """Makes services that start a worker again almost at once. How long the pauses are is tested in `test_restart_policy.py`."""
    monkeypatch.chdir(tmp_path)
    before = [(each, signal.getsignal(each)) for each in _SIGNALS]
    made: list[Service] = []

    def make(run: str, count: int = 2, limit_ms: int = 500, pause_ms: int = 2) -> Service:
        made.append(Service(tmp_path, run, count, limit_ms, pause_ms))
        return made[-1]

    yield make
    signal.set_wakeup_fd(-1)
    signal.alarm(0)
    for number, handler in before:
        signal.signal(number, handler)
    for slot in [each for service in made for each in service.slots]:
        slot.kill()
    for supervisor in [each.supervisor for each in made if each.supervisor is not None]:
        os.close(supervisor._woken)
        os.close(supervisor._waking)


def _page() -> bytes:
    """Return memory with T-0@1 of uow-1 in flight."""
    memory = InFlightMemory()
    memory.turn.take(Envelopes()(1), CallKind.HANDLING)
    return bytes(memory._page)


def _page_of_three() -> bytes:
    """Return memory with T-0@1 to T-0@3 of uow-1 in flight, each in a thread; T-0@4 is overdue."""
    memory, envelopes = InFlightMemory(), Envelopes()
    for slot in (*memory.threads[:3], memory.overdue):
        slot.take(envelopes(1), CallKind.HANDLING)
    return bytes(memory._page)


def test_told_to_stop_every_worker_drains_and_the_end_is_good(new_service):
    service = new_service("drain()")
    assert service.run(lambda: service.log.count("begun 1") == 2, signal.SIGTERM) is ExitCode.DONE
    assert {"drained [slot=0]", "drained [slot=1]"} <= set(service.log.splitlines())


def test_a_worker_that_fails_at_its_end_makes_the_end_bad(new_service):
    service = new_service("drain(); sys.exit(slot)")
    assert service.run(lambda: service.log.count("begun") == 2, signal.SIGTERM) is ExitCode.FAILED


@pytest.mark.slow
def test_a_worker_that_dies_is_started_again_in_its_slot_and_the_others_live_on(new_service):
    service = new_service("os.kill(os.getpid(), 9) if slot == 1 and run < 3 else drain()", pause_ms=100)
    assert service.run(lambda: "begun 3 [slot=1]" in service.log, signal.SIGTERM) is ExitCode.DONE
    assert (service.runs(0), service.runs(1)) == (1, 3)
    assert "worker 1 was killed by SIGKILL at " in service.log
    assert "restart in 0.1 s" in service.log
    assert "restart in 0.2 s" in service.log


def test_one_worker_that_cannot_be_kept_alive_ends_the_service_and_the_others_drain(new_service, monkeypatch):
    monkeypatch.setattr(exit_rules, "MAX_EXITS", 2)
    service = new_service("sys.exit(1) if slot == 1 else drain()")
    assert service.run() is ExitCode.FAILED
    assert "drained [slot=0]" in service.log
    shown = StatusFile(service.directory, 1).find()
    assert shown is not None
    assert shown.state is State.STOPPED
    assert shown.reason is not None
    assert shown.reason.startswith("worker 1 ended with 1 at ")
    assert shown.reason.endswith("no further restart")


def test_each_slot_counts_its_own_exits(new_service, monkeypatch):
    monkeypatch.setattr(exit_rules, "MAX_EXITS", 3)
    service = new_service("os.kill(os.getpid(), 9) if run < 3 else drain()")
    assert service.run(lambda: service.log.count("begun 3") == 2, signal.SIGTERM) is ExitCode.DONE


def test_a_refused_configuration_ends_the_service_with_its_own_code(new_service):
    service = new_service("sys.exit(3) if slot == 1 else drain()")
    assert service.run() is ExitCode.CONFIGURATION_REFUSED
    assert service.runs(1) == 1
    assert "drained [slot=0]" in service.log
    assert "worker 1 ended with exit code 3; a restart cannot help" in service.log


def test_a_worker_that_a_signal_to_the_group_ended_before_it_could_drain_is_no_failure(new_service):
    service = new_service("drain(); slot and os.kill(os.getpid(), 15)")
    assert service.run(lambda: service.log.count("begun") == 2, signal.SIGTERM) is ExitCode.DONE


@pytest.mark.parametrize("end", ["os._exit(0)", "os._exit(143)", "os.kill(os.getpid(), 15)"])
def test_restarts_that_an_operator_orders_end_no_service(new_service, monkeypatch, end):
    monkeypatch.setattr(exit_rules, "MAX_EXITS", 2)
    service = new_service(f"if run < 5:\n  {end}\ndrain()", count=1)
    assert service.run(lambda: "begun 5" in service.log, signal.SIGTERM) is ExitCode.DONE


def test_a_stop_while_a_worker_obeys_an_order_is_no_failure_even_if_it_gets_both_signals(new_service):
    service = new_service("drain(); os._exit(143)", count=1)
    assert service.run(lambda: "begun 1" in service.log, signal.SIGTERM) is ExitCode.DONE


def test_a_second_signal_ends_those_at_once_that_still_drain(new_service):
    service = new_service("drain(); slot and select.select([], [], [], 60)")
    assert service.run(lambda: service.log.count("begun") == 2, signal.SIGTERM, signal.SIGTERM) is ExitCode.FAILED
    assert service.supervisor is not None
    assert not service.supervisor._is_late, "it did not wait for the 30 s"


@pytest.mark.slow
def test_who_does_not_end_in_time_is_killed(new_service, monkeypatch):
    monkeypatch.setattr("notification_service.supervision.supervisor._DRAIN_SECONDS", 1)
    service = new_service("drain(); slot and select.select([], [], [], 60)")
    assert service.run(lambda: service.log.count("begun") == 2, signal.SIGINT) is ExitCode.FAILED
    assert service.log.count("drained") == 2


def test_a_worker_that_waits_to_be_started_again_is_not_started_to_be_stopped(new_service):
    service = new_service("sys.exit(1) if slot == 1 else drain()", pause_ms=600_000)
    assert service.run(lambda: "restart in 600.0 s" in service.log, signal.SIGTERM) is ExitCode.DONE
    assert service.runs(1) == 1
    shown = StatusFile(service.directory, 1).find()
    assert shown is not None
    assert (shown.state, shown.reason) == (State.STOPPED, None)


def test_the_only_worker_is_called_so_and_its_lines_stay_as_they_are(new_service):
    service = new_service("os.kill(os.getpid(), 9) if run == 1 else drain()", count=1)
    assert service.run(lambda: "begun 2" in service.log, signal.SIGTERM) is ExitCode.DONE
    assert "the worker was killed by SIGKILL at " in service.log
    assert "begun 2\n" in service.log


def test_last_words_without_a_newline_are_kept_and_a_process_that_inherits_the_log_delays_nothing(new_service):
    run = """
if run == 1:
    if os.fork() == 0:
        wait_for_drain()
        os._exit(0)
    sys.stdout.write("last words")
    sys.stdout.flush()
    os._exit(1)
drain()
"""
    service = new_service(run, count=1)
    assert service.run(lambda: "begun 2" in service.log, signal.SIGTERM) is ExitCode.DONE
    assert "last words\n" in service.log


def test_each_worker_is_told_how_those_before_it_in_its_slot_ended(new_service):
    service = new_service("print(sys.argv[5:-2], flush=True); sys.exit(7) if run == 1 and slot == 0 else drain()")
    service.run(lambda: service.log.count("begun") == 3 and service.log.count("--restarts") == 3, signal.SIGTERM)
    assert "['--restarts', '0'] [slot=1]" in service.log
    assert "['--restarts', '1', '--last-exit', 'ended with 7 at " in service.log


ENDS = {
    "exits": "os._exit(1)",
    "exits as if its configuration were refused": "os._exit(3)",
    "exits with 0": "os._exit(0)",
    "aborts": "os.abort()",
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_exits_with_an_envelope_in_flight_are_counted_for_it_and_end_no_service(new_service, monkeypatch, end):
    monkeypatch.setattr(exit_rules, "MAX_EXITS", 2)
    service = new_service(f"if run < 4:\n  take()\n  {end}\ndrain()", count=1)
    assert service.run(lambda: "begun 4" in service.log, signal.SIGTERM) is ExitCode.DONE
    (suspect,) = service.suspects.find_all().values()
    assert (suspect.exits, suspect.unit, str(suspect.origin)) == (3, "uow-1", "IPF_PROCESSING_DATA-0@1")
    assert "while handling IPF_PROCESSING_DATA-0@1 of unit 'uow-1' (exit 1 of 3 on this record" in service.log
    assert "the record becomes a dead letter ended-its-worker" in service.log
    assert "[unit=uow-1 partition=IPF_PROCESSING_DATA-0 position=IPF_PROCESSING_DATA-0@1]" in service.log


def test_an_exit_during_several_calls_counts_for_none_and_the_next_for_the_one_that_is_called_alone(new_service, monkeypatch):
    monkeypatch.setattr(exit_rules, "MAX_EXITS", 2)
    service = new_service("if run < 5:\n  take('three' if run < 2 else 'page')\n  os.abort()\ndrain()", count=1)
    assert service.run(lambda: "begun 5" in service.log, signal.SIGTERM) is ExitCode.DONE
    assert {each.offset: each.exits for each in service.suspects.find_all().values()} == {1: 3, 2: 0, 3: 0}
    assert (
        "while handling IPF_PROCESSING_DATA-0@1 of unit 'uow-1', handling IPF_PROCESSING_DATA-0@2 of unit 'uow-1', "
        "handling IPF_PROCESSING_DATA-0@3 of unit 'uow-1' "
        "(one of these 3 ended it: the exit counts for none, and each is called again alone)"
    ) in service.log
    assert "while handling IPF_PROCESSING_DATA-0@1 of unit 'uow-1' (exit 1 of 3 on this record" in service.log


def test_exits_that_show_nothing_new_end_the_service(new_service, monkeypatch):
    monkeypatch.setattr(exit_rules, "MAX_EXITS", 2)
    service = new_service("take('three'); os.abort()", count=1)
    assert service.run() is ExitCode.FAILED
    assert service.runs(0) == 3
    assert [each.exits for each in service.suspects.find_all().values()] == [0, 0, 0]


def test_a_worker_that_goes_on_dying_of_what_it_was_to_set_aside_cannot_be_kept_alive(new_service, monkeypatch):
    monkeypatch.setattr(exit_rules, "MAX_EXITS", 2)
    service = new_service("take(); os._exit(1)", count=1)
    assert service.run() is ExitCode.FAILED
    assert service.runs(0) == 5
    assert "(exit 5 on this record, a dead letter since exit 3: report this as a bug)" in service.log


def test_nor_one_whose_exits_cannot_be_written_down(new_service, monkeypatch):
    monkeypatch.setattr(exit_rules, "MAX_EXITS", 2)
    service = new_service("take(); os._exit(1)", count=1)
    (service.directory / "suspects").write_text("no directory")
    assert service.run() is ExitCode.FAILED
    assert service.runs(0) == 2


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "os.kill(os.getpid(), 15)", "os._exit(143)"])
def test_a_worker_that_is_ended_from_outside_blames_no_envelope(new_service, end):
    service = new_service(f"if run < 4:\n  take()\n  {end}\ndrain()", count=1)
    assert service.run(lambda: "begun 4" in service.log, signal.SIGTERM) is ExitCode.DONE
    assert service.suspects.find_all() == {}


def test_nor_one_that_dies_between_two_calls(new_service):
    service = new_service("if run < 2:\n  take()\n  os.pwrite(in_flight, bytes(4096), 0)\n  os._exit(1)\ndrain()", count=1)
    assert service.run(lambda: "begun 2" in service.log, signal.SIGTERM) is ExitCode.DONE
    assert service.suspects.find_all() == {}


def test_what_the_last_worker_had_in_flight_is_not_in_that_of_the_next(new_service):
    service = new_service("if run == 1:\n  take()\n  os._exit(1)\nif run == 2:\n  os._exit(1)\ndrain()", count=1)
    assert service.run(lambda: "begun 3" in service.log, signal.SIGTERM) is ExitCode.DONE
    assert [each.exits for each in service.suspects.find_all().values()] == [1]


def test_a_worker_that_ends_while_it_drains_blames_nothing(new_service):
    service = new_service("take(); drain(); os._exit(1)", count=1)
    assert service.run(lambda: "begun 1" in service.log, signal.SIGTERM) is ExitCode.FAILED
    assert service.suspects.find_all() == {}


HANGS = {"sleeps": "select.select([], [], [])", "holds on to the interpreter": "import ctypes; ctypes.PyDLL(None).pause()"}


@pytest.mark.slow
@pytest.mark.parametrize("hang", HANGS.values(), ids=HANGS)
def test_a_worker_that_hangs_with_an_envelope_in_flight_is_ended_with_its_stack_in_the_log(new_service, hang):
    run = f"import faulthandler; faulthandler.enable()\nif run < 3:\n  take()\n  {hang}\ndrain()"
    service = new_service(run, count=1, limit_ms=200)
    assert service.run(lambda: "begun 3" in service.log, signal.SIGTERM) is ExitCode.DONE
    (suspect,) = service.suspects.find_all().values()
    assert (suspect.exits, str(suspect.origin)) == (2, "IPF_PROCESSING_DATA-0@1")
    assert suspect.last_exit.startswith("hung for more than 0.2 s (handling-limit) and was ended at ")
    assert (
        "the worker has been handling IPF_PROCESSING_DATA-0@1 of unit 'uow-1' for more than 0.2 s (handling-limit): "
        "the worker is ended. Its stack follows"
    ) in service.log
    assert 'File "<string>", line' in service.log


@pytest.mark.slow
def test_all_that_do_not_move_are_named_for_one_may_hold_the_interpreter(new_service):
    service = new_service("if run < 2:\n  take('three')\n  select.select([], [], [])\ndrain()", count=1, limit_ms=200)
    assert service.run(lambda: "begun 2" in service.log, signal.SIGTERM) is ExitCode.DONE
    assert [each.exits for each in service.suspects.find_all().values()] == [0, 0, 0, 0]
    assert "the worker has been handling IPF_PROCESSING_DATA-0@4 of unit 'uow-1', handling IPF_PROCESSING_DATA-0@1" in service.log


@pytest.mark.slow
def test_one_that_does_not_even_end_by_that_is_killed_and_counted_too(new_service, monkeypatch):
    monkeypatch.setattr("notification_service.supervision.worker_slot._ABORT_SECONDS", 0.1)
    hang = "import signal; signal.signal(signal.SIGABRT, signal.SIG_IGN)\nif run < 2:\n  take()\n  select.select([], [], [])"
    service = new_service(f"{hang}\ndrain()", count=1, limit_ms=200)
    assert service.run(lambda: "begun 2" in service.log, signal.SIGTERM) is ExitCode.DONE
    assert [each.exits for each in service.suspects.find_all().values()] == [1]


@pytest.mark.slow
def test_one_that_was_halted_from_outside_does_not_hang(new_service):
    service = new_service("take()\nos.kill(os.getpid(), 19)\nos.pwrite(in_flight, bytes(4096), 0)\ndrain()", count=1)
    looks = []

    def resume_after_a_while():
        looks.append(service.slots[0]._in_flight._watches[0].elapsed_ms)
        if len(looks) == 100:
            os.kill(service.slots[0]._child.process.pid, signal.SIGCONT)
        return len(looks) > 150 and "begun 1" in service.log

    assert service.run(resume_after_a_while, signal.SIGTERM) is ExitCode.DONE
    assert service.suspects.find_all() == {}
    assert service.runs(0) == 1


@pytest.mark.slow
def test_one_with_nothing_in_flight_may_wait_as_long_as_it_likes(new_service):
    service = new_service("take(); os.pwrite(in_flight, bytes(4096), 0)\ndrain()", count=1)
    began = monotonic()
    assert service.run(lambda: monotonic() > began + 1, signal.SIGTERM) is ExitCode.DONE
    assert service.runs(0) == 1


@pytest.mark.slow
def test_what_a_worker_is_slow_with_is_reported_in_the_status_before_it_is_ended(new_service, monkeypatch):
    monkeypatch.setattr("notification_service.supervision.watchdog._SHOWN_MS", 100)
    service = new_service("if run < 2:\n  take()\n  select.select([], [], [])\ndrain()", count=1, limit_ms=2_000)
    shown: list[str | None] = []
    write = StatusFile.write

    def tell(self, report):
        shown.append(report.reason)
        write(self, report)

    monkeypatch.setattr(StatusFile, "write", tell)
    assert service.run(lambda: "begun 2" in service.log, signal.SIGTERM) is ExitCode.DONE
    assert "handling IPF_PROCESSING_DATA-0@1 of unit 'uow-1'; after 2 s (handling-limit) the worker is ended" in shown


@pytest.mark.parametrize(("end", "code"), [("sys.exit(1)", 1), ("sys.exit(3)", 3), ("os.kill(os.getpid(), 9)", 137)])
def test_where_others_start_it_again_the_service_ends_like_its_only_worker(new_service, end, code):
    service = new_service(end, count=1)
    assert service.run(starts_again=False) == code
    assert service.runs(0) == 1
    assert "WARNING" not in service.log


def test_but_for_exits_that_an_envelope_is_counted_for(new_service):
    service = new_service("if run < 4:\n  take()\n  os._exit(3)\nsys.exit(5)", count=1)
    assert service.run(starts_again=False) == 5
    assert service.runs(0) == 4


def test_where_others_start_it_again_a_second_signal_is_its_exit_code(new_service):
    service = new_service("drain(); select.select([], [], [], 60)", count=1)
    code = service.run(lambda: "begun 1" in service.log, signal.SIGINT, signal.SIGTERM, starts_again=False)
    assert code == 128 + signal.SIGTERM


def test_a_signal_that_came_before_it_listened_counts(new_service):
    assert new_service("drain()").run(has_signal=lambda: True) is ExitCode.DONE


CALLS = f"""
sys.path[:0] = {sys.path!r}
import asyncio, ctypes, faulthandler, threading, time
from pathlib import Path
from harness.driving import Envelopes
from harness.nightly import at_night
from notification_service.supervision.in_flight_memory import InFlightMemory
from notification_service.supervision.suspects import Suspects
from notification_service.wiring.call_runner import CallRunner, HandlingThreads
from notification_service.worker.worker import WorkerInFlight
from resequencer.call import Call
from resequencer.handler import Handled, Marks
faulthandler.enable()
memory = InFlightMemory(in_flight)
hand = WorkerInFlight(memory, Suspects(Path()))
hand.look()
threads = HandlingThreads(memory.threads[:3])
runner = CallRunner(lambda event, *_: handle(event), hand, threads, lambda: None)
new_envelope = Envelopes()
calls = [Call(new_envelope(1, identity=str(number)), None, Marks(), 0) for number in range(1, 22)]
def call_and_wait(*calls):
    for call in calls:
        runner.start(call)
    ended = []
    while len(ended) < len(calls):
        runner.wait(60)
        ended += runner.ended()
    for each in ended:
        print(each.call.envelope.offset, repr(each.outcome), flush=True)
    hand.look()
    hand.forget_those_that(lambda _: True)
def run_all(calls):
    alone = [each for each in calls if runner.must_be_alone(each)]
    for each in alone:
        call_and_wait(each)
    call_and_wait(*[each for each in calls if each not in alone])
"""
"""A worker whose calls `handle` makes; those of suspects are made alone, and before the others."""


@pytest.mark.slow
def test_a_coroutine_that_blocks_the_loop_is_ended_and_it_is_named_although_others_wait(new_service):
    run = """
arrived = asyncio.Barrier(21)
async def handle(event):
    await arrived.wait()
    if event.offset == 7:
        time.sleep(3_600)
    await asyncio.Event().wait()
if run < 2:
    run_all(calls)
drain()
"""
    service = new_service(CALLS + run, count=1, limit_ms=300)
    assert service.run(lambda: "begun 2" in service.log, signal.SIGTERM) is ExitCode.DONE
    assert {each.offset: each.exits for each in service.suspects.find_all().values()} == {7: 1}
    assert "the worker has been handling IPF_PROCESSING_DATA-0@7 of unit 'uow-1' for more than 0.3 s" in service.log
    assert " in handle" in service.log, "the stack shows where"


SEGFAULT = "ctypes.string_at(0)"
IN_A_STEP = f"""
arrived = asyncio.Barrier(21)
async def handle(event):
    if run < 2:
        await arrived.wait()
    if event.offset == 7:
        {SEGFAULT}
    if run < 2:
        await asyncio.Event().wait()
    return Handled()
run_all(calls)
drain()
"""
IN_A_THREAD = f"""
arrived = threading.Barrier(3)
def work(offset):
    if run < 2:
        arrived.wait()
    if offset == 2:
        {SEGFAULT}
    if run < 2:
        threading.Event().wait()
    return Handled()
async def handle(event):
    return await threads.run(lambda: work(event.offset), event)
run_all(calls[:3])
drain()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "killer", "exits"),
    [pytest.param(IN_A_THREAD, 2, 4, id="a thread"), *at_night("ended-workers", (IN_A_STEP, 7, 3))],
)
def test_what_crashes_beside_others_becomes_a_dead_letter_and_it_alone(new_service, run, killer, exits):
    """In a thread the first exit shows only which calls ran; in a step of a coroutine it shows the one."""
    service = new_service(CALLS + run, count=1)
    assert service.run(lambda: f"begun {exits + 1}" in service.log and f"\n{killer} Ended" in service.log, signal.SIGTERM) == 0
    assert service.runs(0) == exits + 1
    assert service.log.count("(one of these 3 ended it: the exit counts for none") == exits - 3
    for number in (1, 2, 3):
        assert f"while handling IPF_PROCESSING_DATA-0@{killer} of unit 'uow-1' (exit {number} of 3 on this record" in service.log
    assert f"{killer} EndedItsWorker('handling it ended 3 workers" in service.log
    assert service.suspects.find_all() == {}
