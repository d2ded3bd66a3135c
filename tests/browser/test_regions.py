"""The page of regions in a browser, on a live service in files: it fits in each state, and resets a region that has failed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.browser import NARROW, WIDE, Visit
from harness.processes.operated_daemon import Daemon
from harness.processes.operated_service import NOTIFICATION, OperatedService
from harness.waiting import wait_until
from playwright.sync_api import Browser

from status.report import StatusReport
from tests.browser.stage import address_of

pytestmark = pytest.mark.slow
LOOKS = ((NARROW, "dark"), (WIDE, "light"))


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    http = (f"{NOTIFICATION}.http.port=0", f"{NOTIFICATION}.http.metrics.port=0")
    service = OperatedService(tmp_path, *http, f"{NOTIFICATION}.region.max-consecutive-reset-attempts=1")
    made = Daemon(service)
    made.start()
    yield made
    service.verb("stop")


@pytest.mark.parametrize("script", [True, False])
def test_a_region_that_has_failed_is_reset_by_its_button_also_without_script(
    browser: Browser, daemon: Daemon, *, script: bool
) -> None:
    service, address = daemon.service, address_of(daemon.service)
    service.tell("u", 1)
    daemon.wait_for(lambda report: report.counts.get("handled") == 1, "the first is handled")
    obstacle = service.out_directory / "positions.json.tmp"
    obstacle.mkdir()
    for number, is_so in ((2, _resets), (3, _has_failed)):
        service.tell("u", number)
        daemon.wait_for(is_so, "it is reset, then it has failed")
    flaws = {}
    for width, scheme in LOOKS:
        with Visit(browser, address, width, scheme) as visit:
            visit.open("/regions")
            flaws[width] = (visit.overflow, visit.barriers)
    assert flaws == {NARROW: (0, []), WIDE: (0, [])}
    obstacle.rmdir()
    with Visit(browser, address, script=script) as visit:
        visit.open("/regions")
        assert "failed: output" in visit.main
        visit.page.get_by_role("button", name="Reset the region of worker 0").click()
        visit.page.wait_for_url("**/regions")
        daemon.wait_for(lambda report: not _has_failed(report), "it goes on")
        visit.open("/regions")
        assert "by local, carried out" in visit.main
    wait_until(lambda: len(service.notifications()) == 3, "all have left once")


def _resets(report: StatusReport) -> bool:
    return report.region is not None and report.region.resets == 1


def _has_failed(report: StatusReport) -> bool:
    return report.region is not None and report.region.state.value == "failed"
