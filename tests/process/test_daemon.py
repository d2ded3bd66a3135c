"""The service as a daemon: started, watched, killed and stopped by the commands of an operator."""

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from errno import ENOSPC
from pathlib import Path
from random import Random

import pytest
from harness.disk.faulty_disk import Call, FaultyDisk
from harness.nightly import SEED
from harness.processes.operated_daemon import Daemon, has_ended
from harness.processes.operated_service import NOTIFICATION, RESEQUENCER
from harness.waiting import pause_until, wait_until

from notification_service.status.report import State

pytestmark = pytest.mark.slow


def test_start_returns_when_it_is_ready_and_stop_when_it_has_drained(daemon: Daemon) -> None:
    assert daemon.service.verb("start").stdout.startswith("ready: process ")
    assert daemon.service.verb("status").returncode == 0
    daemon.service.tell("uow-1", 2, 1)
    daemon.wait_for(lambda report: report.counts.get("handled") == 2, "both are handled")
    assert daemon.service.verb("stop").stdout == "stopped\n"
    status = daemon.service.verb("status")
    assert (status.returncode, status.stdout) == (1, "not running\n")
    assert [each["headers"]["event-name"] for each in daemon.service.notifications()] == ["PaymentReceived", "PaymentValidated"]


def test_stopping_what_does_not_run_is_done_already(daemon: Daemon) -> None:
    stopped = daemon.service.verb("stop")
    assert (stopped.returncode, stopped.stdout) == (0, "not running\n")


def test_a_second_start_is_refused_and_names_the_first(daemon: Daemon) -> None:
    daemon.service.verb("start")
    again = daemon.service.verb("start")
    assert again.returncode == 1
    assert f"in use by the service with process id {daemon.supervisor}" in again.stderr


def test_restart_goes_on_where_it_was(daemon: Daemon) -> None:
    daemon.service.verb("start")
    first = daemon.supervisor
    daemon.service.tell("uow-1", 2)
    daemon.wait_for(lambda report: report.units.waiting == 1, "it waits")
    assert daemon.service.verb("restart").returncode == 0
    assert daemon.supervisor != first
    daemon.service.tell("uow-1", 1)
    daemon.wait_for(lambda report: report.counts.get("handled") == 2, "both are handled")


def test_a_worker_that_was_killed_is_started_again(daemon: Daemon) -> None:
    daemon.service.verb("start")
    supervisor, worker = daemon.supervisor, daemon.worker
    assert worker is not None
    daemon.service.tell("uow-1", 2)
    daemon.wait_for(lambda report: report.units.waiting == 1, "it waits")
    daemon.wait_for(lambda report: (report.process_id, report.worker_process_id) == (supervisor, worker), "both are told")
    os.kill(worker, signal.SIGKILL)
    daemon.wait_for_another_worker(worker)
    assert daemon.supervisor == supervisor
    daemon.service.tell("uow-1", 1)
    daemon.wait_for(lambda report: report.counts.get("handled") == 2, "both are handled")
    assert "the worker was killed by SIGKILL" in daemon.log_file.read_text()


def test_a_worker_whose_supervisor_is_gone_ends_before_another_takes_its_place(daemon: Daemon) -> None:
    daemon.service.verb("start")
    worker = daemon.worker
    assert worker is not None
    os.kill(daemon.supervisor, signal.SIGKILL)
    assert daemon.service.verb("start").returncode == 0
    assert has_ended(worker)
    assert daemon.log_file.exists()


def test_supervisor_and_worker_killed_together_leave_nothing_in_the_way(daemon: Daemon) -> None:
    daemon.service.verb("start")
    worker = daemon.worker
    assert worker is not None
    os.kill(worker, signal.SIGSTOP)
    os.kill(daemon.supervisor, signal.SIGKILL)
    os.kill(worker, signal.SIGKILL)
    assert daemon.service.verb("start").returncode == 0


def test_a_worker_that_dies_again_and_again_ends_the_service_which_says_why(daemon: Daemon) -> None:
    daemon.service.verb("start")
    supervisor, worker = daemon.supervisor, daemon.worker

    def is_over() -> bool:
        nonlocal worker
        if has_ended(supervisor):
            return True
        with suppress(FileNotFoundError, ProcessLookupError):  # One or the other has just ended.
            worker = daemon.worker
            if worker is not None:
                os.kill(worker, signal.SIGKILL)
        return False

    wait_until(is_over, "the supervisor gave up")
    assert "the 10th exit within 60 s: no further restart" in daemon.log_file.read_text()
    assert "the service ended with: the worker was killed by SIGKILL" in daemon.service.verb("status").stdout


def test_a_start_that_fails_says_why(daemon: Daemon) -> None:
    daemon.service.run_directory.mkdir(parents=True)
    (daemon.service.run_directory / "state.db").write_bytes(b"")
    started = daemon.service.verb("start")
    assert started.returncode == 1
    assert "state.db: it is empty, so it was truncated" in started.stderr


def test_a_refused_configuration_starts_nothing(new_daemon: Callable[..., Daemon]) -> None:
    daemon = new_daemon(f"{RESEQUENCER}.stratgy=SEQUENCE")
    assert daemon.service.verb("start").returncode == 3
    assert not daemon.service.run_directory.exists()


def test_two_daemons_with_two_configurations_run_side_by_side(new_daemon: Callable[..., Daemon]) -> None:
    one = new_daemon()
    other = new_daemon(f'{NOTIFICATION}.run-directory="run/other"')
    other.service.run_directory = other.service.directory / "run" / "other"
    assert [each.service.verb("start").returncode for each in (one, other)] == [0, 0]
    assert [each.service.verb("status").returncode for each in (one, other)] == [0, 0]
    assert other.service.verb("stop").returncode == 0
    assert one.service.verb("status").returncode == 0


def test_logs_prints_the_last_lines_and_says_where_there_are_none(daemon: Daemon) -> None:
    assert daemon.service.verb("logs").returncode == 1
    daemon.service.verb("start")
    printed = daemon.service.verb("logs", "--lines", "1").stdout
    assert printed.endswith("resequencer.daemon: ready\n")
    assert printed.count("\n") == 1


def test_logs_that_follow_go_on_when_the_log_is_rotated(daemon: Daemon) -> None:
    daemon.service.verb("start")
    follower = daemon.service.begin_verb("logs", "--follow")
    printed = daemon.service.directory / "logs.log"
    wait_until(lambda: "ready" in printed.read_text(), "the last lines are printed")
    daemon.log_file.rename(daemon.log_file.with_suffix(".log.1"))
    daemon.log_file.write_text("a line of the new one\n")
    wait_until(lambda: "a line of the new one" in printed.read_text(), "the new log is followed")
    follower.kill()


def test_a_log_that_cannot_be_written_stops_no_worker_and_goes_on_when_it_can(
    new_daemon: Callable[..., Daemon], tmp_path: Path
) -> None:
    disk = FaultyDisk.make(tmp_path / "faults")
    daemon = new_daemon(f"{RESEQUENCER}.stash-timeout=200ms", environment=disk.environment)
    daemon.start()
    fault = disk.fail("service.log", Call.WRITE, ENOSPC)
    daemon.service.tell("uow-1", 2)
    daemon.wait_for(lambda report: report.counts.get("handled") == 1, "it is released, and a line says so")
    wait_until(lambda: fault.struck, "the line finds no room")
    assert daemon.is_ready()
    fault.lift()
    daemon.service.tell("uow-2", 2)
    wait_until(lambda: "of unit uow-2" in daemon.log_file.read_text(), "a line stands in the log again")
    assert daemon.report is not None
    assert daemon.report.restarts == 0


def test_draining_takes_the_reports_state_to_stopped(daemon: Daemon) -> None:
    daemon.service.verb("start")
    daemon.service.verb("stop")
    assert daemon.report is not None
    assert daemon.report.state is State.STOPPED


@pytest.mark.nightly("processes")
def test_kills_of_worker_supervisor_or_both_lose_double_and_misplace_nothing(new_daemon: Callable[..., Daemon]) -> None:
    """`make soak` repeats it more often."""
    quick = f"{NOTIFICATION}.worker.restart-pause=20ms"
    daemon = new_daemon(f"{RESEQUENCER}.stash-timeout=2s", "ipf.processing-data.ingress.batch-size=20", quick)
    kills, chance = int(os.environ.get("KILLS", "9")), Random(SEED)
    service = daemon.service
    daemon.service.verb("start")
    for number in range(kills):
        # Each simulation is a load of its own; its deadlines run while the next kill comes.
        simulated = service.verb(
            "simulate", "--units", "60", "--seed", str(number), "--late", "0", "--expected", f"{number}.jsonl"
        )
        assert simulated.returncode == 0
        target = service.output_bytes + chance.randrange(100_000)
        pause_until(lambda goal=target: service.output_bytes >= goal, chance.random())
        _kill(daemon, chance.choice(("worker", "supervisor", "both")))
        assert service.verb("start").returncode in (0, 1), "started again, or its supervisor had not been killed"
    (service.directory / "all.jsonl").write_bytes(b"".join((service.directory / f"{n}.jsonl").read_bytes() for n in range(kills)))
    wait_until(lambda: service.verb("verify", "--expected", "all.jsonl").returncode == 0, "every promise is held", look_seconds=1)


def _kill(daemon: Daemon, victim: str) -> None:
    supervisor, worker = daemon.supervisor, daemon.worker
    if victim in ("supervisor", "both"):
        os.kill(supervisor, signal.SIGKILL)
    if victim in ("worker", "both") and worker is not None:
        os.kill(worker, signal.SIGKILL)
