"""The console in a browser, on a live service of each kind: on files, and on Kafka with each storage."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness.browser import NARROW, WIDE, Visit
from harness.processes.operated_service import envelope_line
from harness.waiting import wait_until
from playwright.sync_api import Browser

from tests.browser.stage import Stage

pytestmark = pytest.mark.slow

PAGES = ("/", "/dead-letters", "/dead-letters/confirm?action=discard&state=new", "/partitions", "/workers")
LOOKS = [(width, scheme) for width in (NARROW, WIDE) for scheme in ("light", "dark")]
"""All on files; on Kafka, where the same templates are filled with other things, two of them."""


@pytest.fixture
def visit(browser: Browser, stage: Stage) -> Iterator[Visit]:
    with Visit(browser, stage.address) as made:
        yield made


def test_every_page_fits_has_no_barrier_and_complains_of_nothing(browser: Browser, stage: Stage) -> None:
    found = {}
    for width, scheme in LOOKS if stage.is_on_files else LOOKS[1:3]:
        with Visit(browser, stage.address, width, scheme) as visit:
            for path in PAGES:
                visit.open(path)
                found[path, width, scheme] = (visit.overflow, visit.barriers)
            assert visit.complaints == []
    assert {look: flaws for look, flaws in found.items() if flaws != (0, [])} == {}


def test_without_script_every_page_says_the_same(browser: Browser, stage: Stage) -> None:
    with Visit(browser, stage.address, script=False) as visit:
        for path in PAGES:
            visit.open(path)
            assert visit.page.locator("main h1").count() == 1
            assert visit.main.strip()


def test_a_page_left_open_follows_what_changes(visit: Visit, stage: Stage) -> None:
    visit.open("/")
    count = visit.page.locator("dl.tiles div").first
    before = count.inner_text()
    stage.feed(envelope_line(f"another-{stage.address[-3:]}", 2))
    wait_until(lambda: count.inner_text() != before, "the number of waiting units changes", look_seconds=0.2)
    assert visit.complaints == []


def test_the_keyboard_alone_skips_navigates_and_requeues_a_dead_letter_after_a_confirmation(visit: Visit, stage: Stage) -> None:
    visit.open("/")
    visit.tab_to("link", "Skip to content", most=1)
    visit.press("Enter")
    assert visit.page.evaluate("document.activeElement.id") == "main"
    visit.open("/")
    visit.tab_to("link", "Dead letters")
    visit.press("Enter")
    visit.page.wait_for_url("**/dead-letters")
    visit.tab_to("combobox", "Reason")
    visit.page.keyboard.type("invalid-id")
    visit.tab_to("button", "Show")
    visit.press("Enter")
    visit.page.wait_for_url("**reason=invalid-id**")
    visit.tab_to("button", "Requeue all 1 …")
    visit.press("Enter")
    visit.page.wait_for_url("**/dead-letters/confirm**")
    visit.tab_to("button", "Requeue 1")
    visit.press("Enter")
    visit.page.wait_for_url("**/dead-letters/decide")
    assert "1 dead letter done" in visit.main
    assert "requeued" in visit.main
    stage.daemon.wait_for(lambda report: sum(report.dead_letters.values()) == 5, "it is a dead letter again")


def test_what_other_systems_wrote_is_text(visit: Visit) -> None:
    dialogs: list[str] = []
    visit.page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    visit.open("/dead-letters?reason=invalid-id")
    assert "\\x1b[31mred\\x1b]0;title\\x07<b>" in visit.main
    visit.open("/dead-letters?reason=undecodable")
    assert "<script>alert(1)</script>" in visit.main
    for path in PAGES:
        visit.open(path)
        assert visit.page.locator("main img, main script, main b").count() == 0
        assert "\x1b" not in visit.page.content()
    assert dialogs == []
    assert visit.complaints == []
