"""The output of `resequencer status` for the real process."""

import json
import signal
from typing import Any

import pytest
from harness.processes.operated_service import NOTIFICATION, OperatedService
from harness.waiting import wait_until

from notification_service.status.report import State

pytestmark = pytest.mark.slow


def test_nothing_that_ever_ran_is_not_running(service: OperatedService) -> None:
    asked = service.verb("status")
    assert (asked.returncode, asked.stdout, asked.stderr) == (1, "not running\n", "")
    assert _told(service, code=1) == {"state": "not running"}
    assert not service.run_directory.exists()


def test_a_ready_service_says_what_waits_for_what_and_since_when(service: OperatedService) -> None:
    service.start_and_wait(f"{NOTIFICATION}.resequencer.stash-timeout=10m")
    service.tell("uow-1", 1, 2, 2)
    service.tell("uow-2", 5, 3)
    service.append(b"not a record")
    service.wait_for("uow-1", 1, 2)
    service.wait_for_report(lambda report: bool(report.oldest_waits and report.dead_letters), "what waits")
    fields = _told(service, code=0)
    assert fields["state"] == "ready"
    assert fields["reason"] is None
    assert service.process is not None
    assert fields["process_id"] == fields["worker_process_id"] == service.process.pid
    assert fields["units"] == {
        "active": 2,
        "waiting": 1,
        "stashed_envelopes": 2,
        "stashed_bytes_in_memory": fields["units"]["stashed_bytes_in_memory"],
        "backlogged": 0,
        "held": 0,
    }
    assert fields["units"]["stashed_bytes_in_memory"] > 0
    (wait,) = fields["oldest_waits"]
    assert (wait["unit"], wait["waits_for"], wait["kind"], wait["stashed"]) == ("uow-2", "sequence:1", "deadline", 2)
    assert wait["since"] < wait["until"]
    assert {name: fields["counts"][name] for name in ("records", "handled", "stashed", "duplicates")} == {
        "records": 6,
        "handled": 2,
        "stashed": 2,
        "duplicates": 1,
    }
    assert fields["notifications"] == {"ACTC": 1, "RCVD": 1}
    assert fields["dead_letters"] == {"undecodable": 1}
    (partition,) = fields["partitions"]
    assert partition["read_to"] == (service.in_directory / "partition-0.jsonl").stat().st_size
    assert partition["unpublished"] == 0
    text = service.verb("status")
    assert text.returncode == 0
    assert text.stdout.startswith("ready\n")
    assert "uow-2 for sequence:1" in text.stdout
    assert service.stop() == 0


def test_after_a_stop_it_is_not_running(service: OperatedService) -> None:
    service.start_and_wait()
    assert service.stop() == 0
    fields = _told(service, code=1)
    assert fields["state"] == "not running"
    assert fields["reason"] is None
    assert service.verb("status").stdout == "not running\n"


def test_a_killed_service_is_not_running_whatever_it_said_last(service: OperatedService) -> None:
    service.start_and_wait()
    service.kill()
    assert _told(service, code=1)["state"] == "not running"


def test_what_it_ended_with_is_said_when_it_did_not_end_well(service: OperatedService) -> None:
    service.start_and_wait()
    service.tell("uow-1", 1)
    service.wait_for("uow-1", 1)
    assert service.stop() == 0
    (service.in_directory / "partition-0.jsonl").write_bytes(b"")
    service.start()
    assert service.wait() == 1
    text = service.verb("status").stdout
    assert text.startswith("not running: the service ended with: ")
    assert "partition-0.jsonl" in text


def test_a_service_that_has_not_said_anything_yet_is_starting(service: OperatedService) -> None:
    service.start()
    wait_until(lambda: (service.run_directory / "lock").exists(), "the lock")
    service.signal(signal.SIGSTOP)
    fields = _told(service, code=None)
    service.signal(signal.SIGCONT)
    assert fields["state"] in ("starting", "ready"), "it was stopped somewhere between the lock and its first cycle"
    service.wait_for_report(lambda report: report.state == State.READY, "ready")
    assert service.stop() == 0


def _told(service: OperatedService, *, code: int | None) -> dict[str, Any]:
    asked = service.verb("status", "--json")
    assert code in (None, asked.returncode), asked.stdout + asked.stderr
    fields: dict[str, Any] = json.loads(asked.stdout)
    return fields
