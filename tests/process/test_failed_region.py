"""A region that fails, as real processes: what is said, what an operator can do, and that nothing is lost or sent twice."""

import json
from collections.abc import Callable
from errno import EACCES
from pathlib import Path

import pytest
from harness.disk.faulty_disk import Call, FaultyDisk
from harness.processes.operated_service import NOTIFICATION, RESEQUENCER, OperatedService
from harness.waiting import wait_until

from guardian.region import RegionState
from notification_service.status.report import RegionStatus, State, StatusReport

pytestmark = pytest.mark.slow

OUTPUT = "out/notifications.jsonl"
MOST = 2


@pytest.fixture
def disk(tmp_path: Path) -> FaultyDisk:
    return FaultyDisk.make(tmp_path / "faults")


@pytest.fixture
def service(new_service: Callable[..., OperatedService], disk: FaultyDisk) -> OperatedService:
    most = f"{NOTIFICATION}.region.max-consecutive-reset-attempts={MOST}"
    return new_service(most, f"{RESEQUENCER}.stash-timeout=10m", environment=disk.environment)


def region_of(report: StatusReport) -> RegionStatus:
    assert report.region is not None
    return report.region


def test_a_sink_that_refuses_fails_the_region_which_stays_and_goes_on_after_an_order(
    service: OperatedService, disk: FaultyDisk
) -> None:
    service.tell("uow-1", 1)
    service.start_and_wait()
    service.wait_for("uow-1", 1)
    fault = disk.fail(OUTPUT, Call.WRITE, EACCES)
    service.tell("uow-2", 1)
    report = service.wait_for_report(lambda report: report.state is State.FAILED, "the region has failed")
    region = region_of(report)
    assert (region.state, region.resets, region.failed) == (RegionState.FAILED, MOST, "file")
    assert "EACCES" in (region.failure or "")
    assert report.reason == f"{region.failed}: {region.failure}"
    assert "the region has failed and takes nothing in until `resequencer region reset`" in service.log
    assert not service.has_died()

    table = service.verb("region", "show")
    assert table.returncode == 1
    assert "failed" in table.stdout.splitlines()[1]
    assert "file (source and sink)" in table.stdout

    fault.lift()
    service.tell("uow-3", 1)
    answer = service.verb("region", "reset")
    assert (answer.returncode, "goes back to its last checkpoint" in answer.stdout) == (0, True), answer
    service.wait_for("uow-2", 1)
    service.wait_for("uow-3", 1)
    after = service.wait_for_report(lambda report: report.state is State.READY, "it is ready")
    assert (region_of(after).state, region_of(after).resets) == (RegionState.RUNNING, MOST + 1)
    assert [service.sequences(f"uow-{number}") for number in (1, 2, 3)] == [[1], [1], [1]]
    assert service.verb("region", "show").returncode == 0
    assert service.stop() == 0


def test_an_order_for_a_region_that_runs_needs_force(service: OperatedService) -> None:
    service.tell("uow-1", 2)
    service.start_and_wait()
    refused = service.verb("region", "reset")
    assert (refused.returncode, "no region has failed" in refused.stderr) == (1, True)
    named = service.verb("region", "reset", "--worker", "0", "--json")
    assert (named.returncode, json.loads(named.stdout)["isDone"]) == (1, False)
    done = service.verb("region", "reset", "--force", "--json")
    assert (done.returncode, json.loads(done.stdout)["isDone"]) == (0, True)
    service.tell("uow-1", 1)
    service.wait_for("uow-1", 1, 2)
    assert "reset the region, which was running" in service.log


def test_a_failed_region_stops_and_begins_at_its_checkpoint(service: OperatedService, disk: FaultyDisk) -> None:
    service.start_and_wait()
    fault = disk.fail(OUTPUT, Call.WRITE, EACCES)
    service.tell("uow-1", 1)
    service.wait_for_report(lambda report: report.state is State.FAILED, "the region has failed")
    assert service.stop() == 0
    fault.lift()
    service.start_and_wait()
    service.wait_for("uow-1", 1)
    assert service.sequences("uow-1") == [1]


def test_an_order_stands_until_the_worker_reads_it_and_one_for_an_earlier_service_is_not_obeyed(
    service: OperatedService,
) -> None:
    stale = service.run_directory / "region-order-0.json"
    service.run_directory.mkdir(parents=True, exist_ok=True)
    stale.write_text('{"service_process_id": 1, "id": "x", "by": "anna", "is_forced": true}')
    service.tell("uow-1", 1)
    service.start_and_wait()
    service.wait_for("uow-1", 1)
    report = service.wait_for_report(lambda report: report.region is not None, "it tells its region")
    assert region_of(report).resets == 0


def test_without_a_service_there_is_nothing_to_reset(service: OperatedService) -> None:
    answer = service.verb("region", "reset")
    assert (answer.returncode, "there is no region to reset" in answer.stderr) == (1, True)
    wait_until(lambda: service.verb("region", "show").returncode == 1, "it is not running")
