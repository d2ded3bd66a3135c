"""The region of a real service on files: it is reset, it fails, says so, and goes on after an order."""

import json
import os
from pathlib import Path

import pytest
from harness.processes.operated_service import NOTIFICATION, OperatedService
from harness.waiting import wait_until

from status.report import State, StatusReport

pytestmark = pytest.mark.slow

ONE_ATTEMPT = f"{NOTIFICATION}.region.max-consecutive-reset-attempts=1"


def test_a_region_that_has_failed_stays_says_why_and_goes_on_after_an_order(service: OperatedService) -> None:
    service.start_and_wait(ONE_ATTEMPT)
    service.tell("uow-1", 1)
    service.wait_for("uow-1", 1)
    service.wait_until_idle()
    obstacle = _obstruct(service)
    service.tell("uow-1", 2)
    service.wait_for_report(lambda report: _resets(report) == 1, "reset")
    service.tell("uow-1", 3)
    failed = service.wait_for_report(lambda report: report.state == State.FAILED, "failed")
    assert failed.region is not None
    assert failed.region.failure is not None
    assert (failed.region.resets, failed.region.failure.participant) == (1, "output")
    assert "positions.json.tmp" in failed.region.failure.reason
    service.tell("uow-1", 4)
    status, shown = service.verb("status"), service.verb("region", "show")
    assert (status.returncode, shown.returncode) == (1, 1)
    assert status.stdout.startswith("failed: the region has failed: output: ")
    assert "output failed at" in shown.stdout
    assert "mend the cause, then `resequencer region reset`" in shown.stdout
    assert "the region has failed after 1 resets in a row" in service.log

    service.verb("region", "reset")  # In vain: the obstacle is still there.
    service.wait_for_report(lambda report: _resets(report) == 3, "reset again")
    service.tell("uow-1", 5)
    service.wait_for_report(lambda report: report.state == State.FAILED and _resets(report) == 3, "failed again")
    obstacle.rmdir()
    reset = service.verb("region", "reset")
    assert (reset.returncode, reset.stdout) == (0, "worker 0: reset; the region is running\n")
    service.wait_for("uow-1", 1, 2, 3, 4, 5)
    assert "has ordered (region reset)" in service.log
    shown = service.verb("region", "show", "--json")
    assert shown.returncode == 0
    told = json.loads(shown.stdout)
    assert (told["worker"], told["region"]["resets"], told["region"]["state"]) == (0, 4, "running")
    assert [each["name"] for each in told["participants"]] == ["source", "storage", "output"]
    assert service.stop() == 0
    assert service.sequences("uow-1") == [1, 2, 3, 4, 5]


def test_a_region_that_runs_is_reset_by_force_only_and_its_waiting_unit_goes_on(service: OperatedService) -> None:
    service.start_and_wait(f"{NOTIFICATION}.resequencer.stash-timeout=10m")
    service.tell("uow-1", 1, 3)
    service.wait_for("uow-1", 1)
    refused = service.verb("region", "reset")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "no region has failed" in refused.stderr
    forced = service.verb("region", "reset", "--force", "--json")
    assert forced.returncode == 0, forced.stderr
    told = json.loads(forced.stdout)
    assert (told["region"]["resets"], told["region"]["ordered"]["refusal"]) == (1, None)
    assert not (service.run_directory / "region-reset-0.json").exists()
    service.tell("uow-1", 2)
    service.wait_for("uow-1", 1, 2, 3)
    assert service.stop() == 0
    assert service.verb("region", "show").returncode == 1
    assert "does not run" in service.verb("region", "reset", "--force").stderr


def test_an_order_for_an_earlier_worker_is_not_obeyed(service: OperatedService) -> None:
    service.start_and_wait()
    assert service.process is not None
    order = {"service_process_id": service.process.pid, "worker_process_id": os.getpid(), "id": "x", "by": "ada"}
    file = service.run_directory / "region-reset-0.json"
    file.write_text(json.dumps({**order, "given_at": "2026-01-01T00:00:00Z", "is_forced": True}))
    service.tell("uow-1", 1)
    service.wait_for("uow-1", 1)
    report = service.wait_for_report(lambda report: report.counts.get("handled") == 1, "handled")
    assert report.region is not None
    assert report.region.resets == 0
    service.kill()
    service.start_and_wait()
    wait_until(lambda: not file.exists(), "the order of another worker is removed")
    assert service.stop() == 0


def _resets(report: StatusReport) -> int:
    return 0 if report.region is None else report.region.resets


def _obstruct(service: OperatedService) -> Path:
    """Stand in the way of the positions, as a person may: what has been written is whole, and nothing new is noted."""
    obstacle = service.out_directory / "positions.json.tmp"
    obstacle.mkdir()
    return obstacle
