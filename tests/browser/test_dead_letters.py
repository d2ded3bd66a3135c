"""A dead letter that a person corrects in a browser, on a live service on files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.browser import NARROW, Visit
from harness.processes.operated_daemon import Daemon
from harness.processes.operated_service import NOTIFICATION, OperatedService, envelope_line
from harness.waiting import wait_until
from playwright.sync_api import Browser

from tests.browser.stage import address_of

pytestmark = pytest.mark.slow


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A service with one dead letter: the sequence of its envelope is a word."""
    made = Daemon(OperatedService(tmp_path, f"{NOTIFICATION}.http.port=0", f"{NOTIFICATION}.http.metrics.port=0"))
    try:
        made.start()
        made.service.append(envelope_line("uow-1", 1).replace(rb'"sequence":1', rb'"sequence":"one"'))
        made.wait_for(lambda report: sum(report.dead_letters.values()) == 1, "it is a dead letter")
        yield made
    finally:
        made.service.verb("stop")


def test_a_dead_letter_is_corrected_where_its_value_is_shown(browser: Browser, daemon: Daemon) -> None:
    with Visit(browser, address_of(daemon.service), NARROW, "dark") as visit:
        visit.open("/dead-letters")
        visit.page.get_by_role("link", name="0#1", exact=True).click()
        visit.page.wait_for_url("**/dead-letter?**")
        assert visit.page.get_by_role("button", name="Requeue", exact=True).count() == 0
        visit.page.get_by_role("link", name="Show value and headers").click()
        visit.page.wait_for_url("**value=shown")
        assert '"sequence": "one"' in visit.main
        assert (visit.overflow, visit.barriers) == (0, [])
        editor = visit.page.get_by_label("The whole corrected value")
        value = editor.input_value()
        editor.fill(value.replace('"one"', '"two"'))
        visit.page.locator("details#edit").get_by_label("Reason").fill("agreed with the sender")
        visit.page.get_by_role("button", name="Send").click()
        visit.page.get_by_text("Nothing was sent: it would be a dead letter again").wait_for()
        assert '"two"' in editor.input_value()
        assert visit.page.locator("details#edit").get_by_label("Reason").input_value() == "agreed with the sender"
        assert (visit.overflow, visit.barriers) == (0, [])
        editor.fill(value.replace('"one"', "1"))
        visit.page.get_by_role("button", name="Send").click()
        visit.page.get_by_text("1 dead letter done").wait_for()
        wait_until(lambda: daemon.service.sequences("uow-1") == [1], "it is handled")
