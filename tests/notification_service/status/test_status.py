"""The output of `resequencer status`, without a process."""

import json
import os

import msgspec
import pytest

from notification_service.command_line import main
from notification_service.status.file import StatusFile
from notification_service.status.report import STALE_AFTER_MS, CallsStatus, Identity, State, StatusReport, UnitWait, report
from notification_service.status.service_report import state_of
from notification_service.supervision.locks import NAME, RunLock
from notification_service.supervision.system_clock import SystemClock

NOW = 1_774_740_835_941


def report_of(state=State.READY, at=NOW, reason=None, process_id=None) -> StatusReport:
    return report(Identity(process_id or os.getpid(), "application.conf", at), state, reason, at)


@pytest.mark.parametrize("state", State)
def test_a_running_service_is_in_the_state_it_says(state):
    assert state_of(report_of(state), NOW, is_running=True) == state


def test_whatever_it_said_last_it_is_not_running_when_no_process_holds_its_directory():
    assert state_of(report_of(), NOW, is_running=False) == "not running"
    assert state_of(None, NOW, is_running=False) == "not running"


def test_a_service_that_has_said_nothing_yet_is_starting():
    assert state_of(None, NOW, is_running=True) == "starting"


@pytest.mark.parametrize(
    ("age_ms", "state"), [(STALE_AFTER_MS, "ready"), (STALE_AFTER_MS + 1, "stale"), (-STALE_AFTER_MS - 1, "stale")]
)
def test_a_service_that_says_nothing_new_is_stale(age_ms, state):
    assert state_of(report_of(), NOW + age_ms, is_running=True) == state


@pytest.fixture
def run_directory(tmp_path, monkeypatch):
    """The run directory of the default configuration, in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    directory = tmp_path / "run" / "application"
    directory.mkdir(parents=True)
    return directory


@pytest.fixture
def is_held(run_directory):
    lock = RunLock(run_directory)
    lock.acquire()
    yield lock
    lock.release()


def test_only_ready_is_exit_code_zero(run_directory, is_held, capsys):
    for state in State:
        StatusFile(run_directory).write(report_of(state, SystemClock().now(), "the reason"))
        assert main(["status"]) == (0 if state is State.READY else 1)
        assert capsys.readouterr().out.startswith(f"{state}: the reason\n")


def test_what_the_process_before_said_is_not_said_of_this_one(run_directory, is_held, capsys):
    StatusFile(run_directory).write(report_of(State.READY, SystemClock().now(), process_id=os.getpid() + 1))
    assert main(["status"]) == 1
    assert capsys.readouterr().out == "starting\n"
    assert main(["status", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"state": "starting"}


def test_what_its_files_take_is_said(run_directory, is_held, capsys):
    StatusFile(run_directory).write(report_of(State.READY, SystemClock().now()))
    (run_directory / "state.db").write_bytes(b"x" * 2_048_000)
    main(["status"])
    assert "\non disk: database 2.0 MB\n" in capsys.readouterr().out
    main(["status", "--json"])
    disk = json.loads(capsys.readouterr().out)["disk"]
    assert disk["database"] == {"files": 1, "bytes": 2_048_000}
    assert set(disk) == {"input", "archive", "output", "facts", "database", "database log", "service log"}


def test_a_holder_that_had_no_room_for_its_process_id_is_believed(run_directory, is_held, capsys):
    (run_directory / NAME).write_bytes(b"")
    StatusFile(run_directory).write(report_of(State.READY, SystemClock().now()))
    assert main(["status"]) == 0
    assert capsys.readouterr().out.startswith("ready\n")


def test_how_it_ended_is_said_after_its_end(run_directory, capsys):
    StatusFile(run_directory).write(report_of(State.STOPPED, SystemClock().now(), "partition-0.jsonl was cut"))
    assert main(["status"]) == 1
    assert capsys.readouterr().out == "not running: the service ended with: partition-0.jsonl was cut\n"
    assert main(["status", "--json"]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert (shown["state"], shown["reason"]) == ("not running", "partition-0.jsonl was cut")


def test_what_waits_is_said_with_its_unit_on_one_line(run_directory, is_held, capsys):
    wait = UnitWait("uow\u2028 é", "T-0", "sequence:3", "deadline", "2026-03-28T23:33:55Z", "2026-03-28T23:34:16Z", 2)
    shown = msgspec.structs.replace(report_of(at=SystemClock().now()), oldest_waits=(wait,))
    StatusFile(run_directory).write(shown)
    assert main(["status"]) == 0
    assert r"uow\u2028 é for sequence:3 (2 stashed, deadline at" in capsys.readouterr().out.split("\n")[-2]


def test_servers_that_handlers_cannot_reach_are_named_with_how_many_wait(run_directory, is_held, capsys):
    shown = msgspec.structs.replace(report_of(at=SystemClock().now()), unavailable={"sanctions-api": 1_200, "rates": 1})
    StatusFile(run_directory).write(shown)
    assert main(["status"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ready"
    assert lines[-2:] == ["sanctions-api unavailable: 1200 units wait for it", "rates unavailable: 1 unit waits for it"]
    assert main(["status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unavailable"] == {"sanctions-api": 1_200, "rates": 1}


def test_calls_of_a_handler_that_waits_are_shown_with_the_longest_and_those_that_do_not_end(run_directory, is_held, capsys):
    plain = report_of(at=SystemClock().now())
    calls = CallsStatus(12, 3, 2, "uow-7", 2_149, ("uow-1",))
    StatusFile(run_directory).write(msgspec.structs.replace(plain, calls=calls, counts={"timeouts": 1}))
    main(["status"])
    lines = capsys.readouterr().out.splitlines()
    assert "calls: 12 under way, the longest for 2.1 s (unit uow-7), 3 waiting to begin, 1 time-out" in lines
    assert "calls that continue after their time-out: 2 (units uow-1, …)" in lines
    main(["status", "--json"])
    assert json.loads(capsys.readouterr().out)["calls"]["lingering_units"] == ["uow-1"]
    StatusFile(run_directory).write(msgspec.structs.replace(plain, calls=CallsStatus()))
    main(["status"])
    shown = capsys.readouterr().out
    assert "\ncalls: 0 under way, 0 waiting to begin, 0 time-outs\n" in shown
    assert "after their time-out" not in shown


def test_a_unit_whose_handler_is_called_waits_since_then_and_until_no_instant(run_directory, is_held, capsys):
    wait = UnitWait("u", "T-0", "its handler, attempt 1 of 3", "call", "2026-03-28T23:33:55Z", "2026-03-28T23:33:56Z", 1)
    StatusFile(run_directory).write(msgspec.structs.replace(report_of(at=SystemClock().now()), oldest_waits=(wait,)))
    main(["status"])
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.endswith("u for its handler, attempt 1 of 3 (1 stashed, call since 2026-03-28T23:33:56Z)")


def test_workers_that_died_are_counted_with_the_last_ones_words(run_directory, is_held, capsys):
    shown = msgspec.structs.replace(report_of(at=SystemClock().now()), restarts=2, last_exit="ended with 1: no\nroom")
    StatusFile(run_directory).write(shown)
    assert main(["status"]) == 0
    assert capsys.readouterr().out.split("\n")[2] == r"started again 2 times: the previous worker ended with 1: no\nroom"


def test_a_configuration_that_is_refused_is_exit_code_three(run_directory, capsys):
    assert main(["status", "--set", "payment-status-notification.stratgy=1"]) == 3
    assert capsys.readouterr().out == ""


def test_a_stale_service_tells_what_its_worker_is_slow_with(run_directory, is_held, capsys):
    at = SystemClock().now() - 2 * STALE_AFTER_MS
    StatusFile(run_directory).write(report_of(State.READY, at, "handling T-0@17 of unit 'uow-1'"))
    assert main(["status"]) == 1
    shown = capsys.readouterr().out.splitlines()[0]
    assert shown.startswith("stale: no report since ")
    assert shown.endswith("; it was ready then: handling T-0@17 of unit 'uow-1'")
