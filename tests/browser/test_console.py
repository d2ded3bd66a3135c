"""The console in a browser, on a live service of each kind: on files, and on Kafka with each storage."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlencode

import pytest
from harness.browser import NARROW, WIDE, Visit
from harness.processes.operated_service import envelope_line
from harness.waiting import wait_until
from playwright.sync_api import Browser

from notification_service.connectors.line_format import Line, encode_line
from tests.browser.stage import ASKED, BANK, BOLD, DEBTOR, HOSTILE, JOB, LONGEST, MANY, PAID, RECEIVER, Stage

pytestmark = pytest.mark.slow

PAGES = (
    "/",
    "/waiting",
    "/waiting?id=L",
    *(f"/unit?{urlencode({'id': each})}" for each in (ASKED, PAID, HOSTILE, LONGEST)),
    f"/find?{urlencode({'text': HOSTILE, 'all': '1'})}",
    "/dead-letters",
    "/dead-letters/confirm?action=discard&state=new",
    "/orders",
    "/partitions",
    "/regions",
    "/workers",
    "/delivery",
    f"/delivery/job?id={JOB}",
    f"/delivery/receiver?name={RECEIVER}",
)
LOOKS = ((NARROW, "dark"), (WIDE, "light"))
"""Between them both widths and both schemes: what is too wide is so in each scheme, and what lacks contrast at each width.

A service has one of them by its transport, so that `make test` looks at each page in both.
"""


@pytest.fixture
def visit(browser: Browser, stage: Stage) -> Iterator[Visit]:
    with Visit(browser, stage.address) as made:
        yield made


def test_every_page_fits_has_no_barrier_and_complains_of_nothing(browser: Browser, stage: Stage) -> None:
    with Visit(browser, stage.address, *LOOKS[stage.is_kafka]) as visit:
        found = {}
        for path in (*PAGES, *stage.more_pages):
            visit.open(path)
            found[path] = (visit.overflow, visit.barriers)
        assert visit.complaints == []
    assert {path: flaws for path, flaws in found.items() if flaws != (0, [])} == {}


def test_without_script_every_page_has_the_same_figures_and_a_unit_is_found(browser: Browser, stage: Stage) -> None:
    with Visit(browser, stage.address) as with_script, Visit(browser, stage.address, script=False) as without:
        for path in (*PAGES, *stage.more_pages):
            if path.startswith(("/delivery/topics", "/delivery/receiver")):
                # A probe of the receiver that fails may come between the two: then both are opened again.
                wait_until(lambda path=path: _parts(without, path) == _parts(with_script, path), f"{path} is the same")
            else:
                assert _parts(without, path) == _parts(with_script, path)
        for visit in (with_script, without):
            visit.page.get_by_role("searchbox").fill(ASKED)
            visit.page.get_by_role("button", name="Find").click()
            visit.page.wait_for_url("**/unit**")
            assert "It waits for sequence:2" in visit.main


def _parts(visit: Visit, path: str) -> list[str]:
    visit.open(path)
    return visit.page.locator("h1, dt, button:not([data-script])").all_inner_texts()


def test_a_page_left_open_follows_what_changes(visit: Visit, stage: Stage) -> None:
    visit.open("/")
    count = visit.page.locator("dl.tiles div").first
    before = count.inner_text()
    focused = "document.activeElement.closest('main') && document.activeElement.getAttribute('href')"
    visit.page.locator("main a").first.focus()
    link = visit.page.evaluate(focused)
    assert link
    stage.feed(envelope_line(f"another-{stage.address[-3:]}", 2))
    wait_until(lambda: count.inner_text() != before, "the number of waiting units changes", look_seconds=0.2)
    assert visit.page.evaluate(focused) == link, "the keyboard goes on where it was"
    assert visit.complaints == []


def test_updates_can_be_paused_and_the_page_says_how_old_it_is_in_the_readers_zone(browser: Browser, stage: Stage) -> None:
    with Visit(browser, stage.address, zone="Asia/Kolkata") as visit:
        visit.open("/")
        updates = visit.page.get_by_role("region", name="Updates")
        as_of = visit.page.locator("[data-as-of]")
        assert "GMT+5:30" in as_of.inner_text()
        updates.get_by_role("button", name="Pause updates").click()
        before = as_of.inner_text()
        visit.page.evaluate("window.heard = 0; new EventSource('/events').addEventListener('changed', () => window.heard++)")
        wait_until(lambda: visit.page.evaluate("window.heard") > 1, "the service has something new", look_seconds=0.2)
        wait_until(
            lambda: "This page is 2 s old; updates are paused" in updates.inner_text(), "the age goes on", look_seconds=0.2
        )
        assert as_of.inner_text() == before
        updates.get_by_role("button", name="Continue updates").click()
        wait_until(lambda: as_of.inner_text() != before, "the page is fetched again", look_seconds=0.2)
        assert visit.complaints == []


def test_a_table_that_is_whole_on_its_page_is_sorted_by_a_column_and_stays_so(visit: Visit, stage: Stage) -> None:
    if not stage.has_view:
        return
    visit.open("/waiting")
    table = visit.page.get_by_role("group", name="What they wait for")
    first = table.locator("tbody th").first
    assert first.inner_text() == "sequence:1", "most units wait for this"
    table.get_by_role("button", name="Units").click()
    assert first.inner_text() == "sequence:2"
    as_of = visit.page.locator("[data-as-of]")
    before = as_of.inner_text()
    wait_until(lambda: as_of.inner_text() != before, "the page is fetched again", look_seconds=0.2)
    assert first.inner_text() == "sequence:2"
    assert table.locator("th[aria-sort=ascending]").inner_text().startswith("Units")


def test_what_is_chosen_in_a_form_stays_until_it_is_sent(browser: Browser, visit: Visit, stage: Stage) -> None:
    visit.open("/dead-letters")
    reason = visit.page.get_by_label("Reason")
    reason.select_option("invalid-id")
    visit.page.get_by_role("button", name="Show").focus()
    refreshed: list[str] = []
    visit.page.on("request", lambda asked: refreshed.append(asked.url) if "x-refresh" in asked.headers else None)
    visit.page.evaluate("window.heard = 0; new EventSource('/events').addEventListener('changed', () => window.heard++)")
    with Visit(browser, stage.address) as other:
        other.open("/dead-letters")
        as_of = other.page.locator("[data-as-of]")
        before = as_of.inner_text()
        stage.feed(envelope_line(f"chosen-{stage.address[-3:]}", 2))
        wait_until(lambda: as_of.inner_text() != before, "a page without a choice is refreshed", look_seconds=0.2)
    heard = visit.page.evaluate("window.heard")
    wait_until(lambda: visit.page.evaluate("window.heard") > heard + 1, "it is told of changes, too", look_seconds=0.2)
    assert refreshed == []
    assert reason.input_value() == "invalid-id"
    visit.press("Enter")
    visit.page.wait_for_url("**reason=invalid-id**")


def test_what_is_chosen_while_the_answer_of_a_refresh_is_read_stays(visit: Visit, stage: Stage) -> None:
    visit.open("/dead-letters")
    visit.page.evaluate(
        """() => {
            const text = Response.prototype.text;
            Response.prototype.text = async function () {
                const body = await text.call(this);
                document.querySelector("main select[name=reason]").value = "invalid-id";
                setTimeout(() => window.hasChosen = true);
                return body;
            };
        }"""
    )
    stage.feed(envelope_line(f"late-{stage.address[-3:]}", 2))
    wait_until(lambda: visit.page.evaluate("window.hasChosen"), "an answer was read", look_seconds=0.2)
    assert visit.page.get_by_label("Reason").input_value() == "invalid-id"


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


def test_what_other_systems_wrote_is_text(visit: Visit, stage: Stage) -> None:
    dialogs: list[str] = []
    visit.page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    visit.open("/dead-letters?reason=invalid-id")
    assert "\\x1b[31mred\\x1b]0;title\\x07<b>" in visit.main
    visit.open("/dead-letters?reason=undecodable")
    assert "<script>alert(1)</script>" in visit.main
    visit.open(f"/delivery/receiver?name={RECEIVER}")
    assert BOLD in visit.main
    for path in (*PAGES, *stage.more_pages):
        visit.open(path)
        assert visit.page.locator("main img, main script, main b").count() == 0
        assert "\x1b" not in visit.page.content()
    assert dialogs == []
    assert visit.complaints == []


def test_a_blocked_record_of_a_topic_is_skipped_and_is_a_dead_letter_of_its_receiver(visit: Visit, stage: Stage) -> None:
    visit.open("/delivery")
    if not stage.is_kafka:
        assert "straight from topics" not in visit.main
        return
    assert "1 receiver straight from topics" in visit.main
    visit.page.get_by_role("link", name=BANK, exact=True).click()
    visit.page.wait_for_url("**/delivery/topics**")
    skip = visit.page.locator("form", has_text="Skip").filter(has_not=visit.page.locator("select")).first
    skip.get_by_label("Reason").fill("the account is closed")
    button = skip.get_by_role("button", name="Skip")
    place = button.inner_text().removeprefix("Skip ")
    button.click()
    visit.page.wait_for_url("**/delivery/skip")
    assert f"{place} is a dead letter" in visit.main
    visit.open(f"/dead-letters?receiver={BANK}")
    assert "the account is closed" in visit.main
    visit.page.get_by_role("main").locator("th a").first.click()
    visit.page.wait_for_url("**/dead-letter?**")
    visit.page.get_by_role("button", name="Requeue").click()
    visit.page.wait_for_url("**/dead-letters/decide")
    assert "requeued to" in visit.main


def test_who_has_only_an_id_learns_whether_it_is_here_and_what_it_waits_for(visit: Visit, stage: Stage) -> None:
    def find(unit: str) -> str:
        visit.tab_to("searchbox", "Find by an id")
        visit.page.keyboard.type(unit)
        visit.press("Enter")
        visit.page.wait_for_url(f"**{unit}")
        return visit.main

    visit.open("/")
    assert "It waits for sequence:2" in find(ASKED)
    visit.open("/workers")
    assert ("Nothing of it waits" if stage.has_view else "it is not among them") in find(PAID)
    visit.open("/dead-letters")
    assert "Nothing with this id was found" in find("uow-of-another-bank")


def test_payment_data_is_one_step_further_and_is_text(visit: Visit, stage: Stage) -> None:
    visit.open(f"/unit?id={ASKED}")
    assert DEBTOR not in visit.main
    if not stage.has_view:  # What a worker has in memory, the console does not see.
        return
    visit.tab_to("link", "Look at the payment data")
    visit.press("Enter")
    visit.page.wait_for_url("**/unit/payment-data**")
    assert DEBTOR in visit.main
    assert (visit.overflow, visit.barriers, visit.complaints) == (0, [], [])


def test_thousands_of_units_are_paged_through_and_found_by_their_beginning(visit: Visit, stage: Stage) -> None:
    visit.open("/waiting")
    units = visit.page.locator("tbody th.id")
    if not stage.has_view:
        assert units.first.inner_text() == ASKED
        assert "Only the oldest waits" in visit.main
        return
    wait_until(lambda: visit.open("/waiting") and units.count() == 50, "the console has copied them", look_seconds=0.2)
    assert units.first.inner_text() == ASKED
    seen = set(units.all_inner_texts())
    first = units.all_inner_texts()
    for page in range(2, 5):
        visit.page.get_by_role("link", name="Next page").click()
        visit.page.wait_for_url("**after=**")
        seen |= set(units.all_inner_texts())
        assert len(seen) == 50 * page
        assert f"{50 * page - 49}–{50 * page} of 3,0" in visit.main
    for number in (101, 51, 1):
        visit.page.get_by_role("link", name="Previous page").click()
        visit.page.get_by_text(f"{number}–{number + 49} of 3,0").wait_for()
    assert units.all_inner_texts() == first
    visit.page.get_by_label("Id (beginning)").fill("bulk-0299")
    visit.page.get_by_role("button", name="Show").click()
    visit.page.wait_for_url("**id=bulk-0299**")
    assert units.all_inner_texts() == [f"bulk-{each:05}" for each in range(2990, MANY)]
    visit.page.get_by_label("Id (beginning)").fill(HOSTILE)
    visit.page.get_by_role("button", name="Show").click()
    units.first.get_by_role("link").click()
    visit.page.wait_for_url("**/unit**")
    assert f"Unit {HOSTILE}" in visit.main
    assert "It waits for sequence:1" in visit.main
    assert visit.complaints == []


def test_the_row_under_the_mouse_stays_there_while_rows_above_it_come_and_go(visit: Visit, stage: Stage) -> None:
    visit.open("/dead-letters")
    row = visit.page.locator("tbody tr").last
    name = row.locator("th").inner_text()
    row.locator("td").nth(1).hover()
    under = "document.elementFromPoint(...window.mouse)?.closest('tr')?.querySelector('th').innerText"
    box = row.locator("td").nth(1).bounding_box()
    assert box is not None
    visit.page.evaluate("at => { window.mouse = at; }", [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2])
    assert visit.page.evaluate(under) == name
    rows = visit.page.locator("tbody tr")
    count = rows.count()
    stage.feed(encode_line(Line(b"no JSON", b"k"))[:-1])
    wait_until(lambda: rows.count() > count, "a dead letter comes above it", look_seconds=0.2)
    assert visit.page.evaluate(under) == name
