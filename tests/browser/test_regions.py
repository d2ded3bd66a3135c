"""A region that has failed and is reset in a browser, on a live service on files."""

from __future__ import annotations

from collections.abc import Iterator
from errno import EACCES
from pathlib import Path

import pytest
from harness.browser import NARROW, Visit
from harness.disk.faulty_disk import Call, Fault, FaultyDisk
from harness.processes.operated_daemon import Daemon
from harness.processes.operated_service import NOTIFICATION, OperatedService
from harness.waiting import wait_until
from playwright.sync_api import Browser

from notification_service.status.report import State
from tests.browser.stage import address_of

pytestmark = pytest.mark.slow


@pytest.fixture
def failed(tmp_path: Path) -> Iterator[tuple[Daemon, Fault]]:
    """A daemon whose only region has failed, because its output refuses to be written."""
    disk = FaultyDisk.make(tmp_path / "faults")
    service = OperatedService(
        tmp_path,
        f"{NOTIFICATION}.http.port=0",
        f"{NOTIFICATION}.http.metrics.port=0",
        f"{NOTIFICATION}.region.max-consecutive-reset-attempts=1",
        environment=disk.environment,
    )
    daemon = Daemon(service)
    try:
        daemon.start()
        fault = disk.fail("out/notifications.jsonl", Call.WRITE, EACCES)
        service.tell("uow-1", 1)
        daemon.wait_for(lambda report: report.state is State.FAILED, "the region has failed")
        yield daemon, fault
    finally:
        service.verb("stop")


def test_a_failed_region_is_reset_by_its_button(browser: Browser, failed: tuple[Daemon, Fault]) -> None:
    daemon, fault = failed
    with Visit(browser, address_of(daemon.service), NARROW, "dark") as visit:
        visit.open("/regions")
        assert "it takes nothing in until it is reset" in visit.main
        assert "EACCES" in visit.main
        assert (visit.overflow, visit.barriers, visit.complaints) == (0, [], [])
    fault.lift()
    with Visit(browser, address_of(daemon.service), script=False) as visit:
        visit.open("/regions")
        visit.page.get_by_role("button", name="Reset the region of worker 0").click()
        visit.page.wait_for_url("**/regions")
        wait_until(lambda: daemon.service.sequences("uow-1") == [1], "it has left")
        wait_until(lambda: (visit.open("/regions"), "goes back to its last checkpoint" in visit.main)[1], "the answer")
        wait_until(lambda: (visit.open("/regions"), "running" in visit.main)[1], "it runs")
    with Visit(browser, address_of(daemon.service), NARROW, "dark") as visit:
        visit.open("/regions")
        visit.page.get_by_role("link", name="Reset it to its initial state…").click()
        visit.page.wait_for_url("**/regions/initial?slot=0")
        assert "a reset to the initial state would read" in visit.main
        assert (visit.overflow, visit.barriers) == (0, [])
        visit.page.get_by_label("Reason").fill("a wrong mapping")
        visit.page.get_by_role("button", name="Reset to the initial state").click()
        visit.page.wait_for_url("**/regions")
        wait_until(lambda: daemon.service.sequences("uow-1") == [1, 1], "it is sent again")
        assert visit.complaints == []
