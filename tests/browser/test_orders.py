"""Orders given in a browser, on a live service on files: each kind, a refused one, and the approval of a second person."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from harness.browser import NARROW, WIDE, Visit
from harness.processes.operated_daemon import Daemon
from harness.processes.operated_service import INGRESS, NOTIFICATION, RESEQUENCER, OperatedService, envelope_line
from harness.waiting import wait_until
from playwright.sync_api import Browser

from notification_service.connectors.line_format import Line, decode_line, encode_line
from tests.browser.stage import HOSTILE, address_of

pytestmark = pytest.mark.slow

UNITS = ("released", "skipped", "held", "extended", "taken-out", HOSTILE)
PARTITION = "IPF_PROCESSING_DATA-0"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    service = OperatedService(
        tmp_path_factory.mktemp("ordered"),
        f"{NOTIFICATION}.http.port=0",
        f"{NOTIFICATION}.http.metrics.port=0",
        f"{NOTIFICATION}.orders.enabled=true",
        f"{RESEQUENCER}.stash-timeout=1h",
        f"{INGRESS}.batch-size=50",
    )
    made = Daemon(service)
    try:
        made.start()
        service.append(*(envelope_line(unit, 2) for unit in UNITS))
        made.wait_for(lambda report: report.units.waiting == len(UNITS), "all wait")
        yield made
    finally:
        service.verb("stop")


def _order(visit: Visit, unit: str, kind: str, button: str, fill: Callable[[Visit], None] = lambda _: None) -> None:
    visit.open(f"/unit?{urlencode({'id': unit})}")
    visit.page.locator("section[aria-labelledby=orders]").get_by_role("link", name=kind, exact=True).click()
    visit.page.get_by_label("Reason").fill(f"because of {unit}")
    fill(visit)
    visit.page.get_by_role("button", name=button).click()
    visit.page.wait_for_url("**#order-*")


def _shows(visit: Visit, *texts: str) -> bool:
    visit.open("/orders")
    return all(each in visit.main for each in texts)


def test_each_order_is_given_and_its_outcome_shown(browser: Browser, daemon: Daemon) -> None:
    with Visit(browser, address_of(daemon.service)) as visit:
        _order(visit, "released", "Release", "Release")
        wait_until(lambda: "done: released 1 envelope" in visit.main, "the unit's page follows and shows the outcome")
        assert visit.page.locator("svg.timeline circle.order").count() == 1
        _order(visit, "skipped", "Skip", "Skip")
        _order(visit, "held", "Hold", "Hold", lambda each: each.page.get_by_label("For").fill("2h"))
        _order(visit, "extended", "Extend", "Extend", lambda each: each.page.get_by_label("Until").fill("2020-01-01T00:00"))
        _order(visit, HOSTILE, "Release", "Release")
        visit.open("/unit?id=taken-out")
        visit.page.get_by_role("link", name="dead-letter", exact=True).click()
        visit.page.get_by_label("Reason").fill("it is wrong")
        visit.page.get_by_role("button", name="Dead-letter").click()
        done = ("done: released 1 envelope", "done: skipped sequence:1", "done: the envelope is a dead letter")
        expected = (*done, "is not within 24 h")
        wait_until(lambda: _shows(visit, *expected), "each has an outcome")
        wait_until(lambda: (visit.open("/unit?id=held"), "by local since" in visit.main)[1], "it is held")
        _order(visit, "held", "Resume", "Resume")
        wait_until(lambda: _shows(visit, "held-until-resumed"), "the hold is over")
        assert visit.complaints == []
    assert daemon.service.sequences("released") == [2]
    assert daemon.service.sequences("skipped") == [2]
    assert daemon.service.sequences("held") == []


def test_all_units_of_a_filter_are_released_after_their_count_was_shown(browser: Browser, daemon: Daemon) -> None:
    daemon.service.append(*(envelope_line(f"lost-{each}", 2) for each in range(3)))
    for width, scheme in ((NARROW, "dark"), (WIDE, "light")):
        with Visit(browser, address_of(daemon.service), width, scheme) as visit:
            found = visit.page.locator("tbody th.id")
            wait_until(lambda v=visit, f=found: v.open("/waiting?id=lost-") and f.count() == 3, "they wait", look_seconds=0.2)
            visit.page.get_by_role("button", name="Release all that match").click()
            visit.page.wait_for_url("**/orders/all**")
            assert "Release 3 units?" in visit.main
            assert (visit.overflow, visit.barriers, visit.complaints) == (0, [], [])
            if width == WIDE:
                visit.page.get_by_label("Reason").fill("their source was lost")
                visit.page.get_by_role("button", name="Release 3").click()
                visit.page.wait_for_url("**/orders/give-all")
                assert "3 orders are given." in visit.main
                assert visit.barriers == []
    wait_until(lambda: all(daemon.service.sequences(f"lost-{each}") == [2] for each in range(3)), "each is released")


def test_a_partition_is_paused_and_resumed(browser: Browser, daemon: Daemon) -> None:
    with Visit(browser, address_of(daemon.service)) as visit:
        for link, button, text in (("pause", "Pause", "is paused by local"), ("resume", "Resume", f"pause {PARTITION}")):
            visit.open("/partitions")
            visit.page.get_by_role("link", name=f"{link} {PARTITION}").click()
            visit.page.get_by_label("Reason").fill("a look")
            visit.page.get_by_role("button", name=button).click()
            wait_until(lambda text=text: (visit.open("/partitions"), text in visit.main)[1], text)


def test_the_pages_of_orders_fit_and_have_no_barrier(browser: Browser, daemon: Daemon) -> None:
    pages = (
        "/orders",
        f"/orders/new?{urlencode({'kind': 'release', 'unit': 'extended', 'partition': PARTITION})}",
        f"/orders/new?{urlencode({'kind': 'hold', 'unit': HOSTILE, 'partition': PARTITION})}",
        f"/orders/new?{urlencode({'kind': 'pause', 'partition': PARTITION})}",
    )
    found = {}
    for width, scheme in ((NARROW, "dark"), (WIDE, "light")):
        with Visit(browser, address_of(daemon.service), width, scheme) as visit:
            for number, path in enumerate(pages):
                visit.open(path)
                found[path, width, scheme] = (visit.overflow, visit.barriers if number % 2 == (width == WIDE) else [])
            visit.open("/orders")
            heights = visit.page.locator("tr[id^=order-]").evaluate_all("rows => rows.map(each => each.offsetHeight)")
            assert heights
            assert max(heights) < 300, "a row of an order is a few lines, and no screen"
            visit.open(pages[1])
            box = visit.page.get_by_label("do not wait for unread records").bounding_box()
            label = visit.page.locator("label.check").bounding_box()
            assert box is not None
            assert label is not None
            assert label["height"] < 2 * box["height"] + 10, "the box stands beside its label"
            assert visit.complaints == []
    assert {look: flaws for look, flaws in found.items() if flaws != (0, [])} == {}


def test_a_second_person_approves(browser: Browser, tmp_path: Path) -> None:
    service = OperatedService(
        tmp_path,
        f"{NOTIFICATION}.http.port=0",
        f"{NOTIFICATION}.http.metrics.port=0",
        f"{NOTIFICATION}.http.auth=basic",
        f"{NOTIFICATION}.http.approval=[release,edit]",
        f"{NOTIFICATION}.orders.enabled=true",
        f"{RESEQUENCER}.stash-timeout=1h",
    )
    daemon = Daemon(service)
    for name in ("anna", "ben"):
        _add_user(service, name)
    try:
        daemon.start()
        service.append(envelope_line("watched", 2))
        daemon.wait_for(lambda report: report.units.waiting == 1, "it waits")
        address = address_of(service)
        with Visit(browser, address.replace("://", "://anna:password-of-anna@")) as visit:
            _order(visit, "watched", "Release", "Release")
            assert "proposed (to approve)" in visit.main
            visit.open("/orders")
            assert "1 proposal to approve" in visit.main
            assert visit.page.get_by_role("button", name="Approve").count() == 0
        assert service.sequences("watched") == []
        with Visit(browser, address.replace("://", "://ben:password-of-ben@")) as visit:
            visit.open("/orders")
            visit.page.get_by_role("button", name="Approve").click()
            wait_until(lambda: _shows(visit, "approved by ben", "done: released 1 envelope"), "it is executed")
        assert service.sequences("watched") == [2]
        _edit_with_approval(browser, daemon, address)
    finally:
        service.verb("stop")


def _edit_with_approval(browser: Browser, daemon: Daemon, address: str) -> None:
    """One person corrects a dead letter, another one sees the proposal and sends it."""
    service = daemon.service
    sound = decode_line(envelope_line("mended", 1))
    assert isinstance(sound, Line)
    service.append(encode_line(Line(b"{", sound.key, sound.headers))[:-1])
    daemon.wait_for(lambda report: sum(report.dead_letters.values()) == 1, "it is a dead letter")
    with Visit(browser, address.replace("://", "://anna:password-of-anna@")) as visit:
        visit.open("/dead-letters")
        visit.page.locator("a[href^='/dead-letter?']").first.click()
        letter = visit.page.url[visit.page.url.index("/dead-letter?") :]
        visit.page.get_by_text("Edit and send again").click()
        visit.page.get_by_label("The whole corrected value").fill(sound.value.decode())
        visit.page.locator("#edit").get_by_label("Reason").fill("the producer cut it")
        visit.page.locator("#edit").get_by_role("button").click()
        wait_until(lambda: (visit.open(letter), "edit-proposed" in visit.main)[1], "it is proposed")
        assert visit.page.get_by_role("button", name="Approve and send").count() == 0
    assert service.sequences("mended") == []
    with Visit(browser, address.replace("://", "://ben:password-of-ben@")) as visit:
        visit.open(letter)
        assert "anna proposed" in visit.main
        visit.page.get_by_role("button", name="Approve and send").click()
        wait_until(lambda: (visit.open(letter), "edited at" in visit.main and "proposed by anna" in visit.main)[1], "it is sent")
    wait_until(lambda: service.sequences("mended") == [1], "what it leads to has left")


def _add_user(service: OperatedService, name: str) -> None:
    arguments = ["console", *service.arguments, "add-user", name, "--role", "operator"]
    subprocess.run(
        [sys.executable, "-m", "notification_service", *arguments],
        cwd=service.directory,
        input=f"password-of-{name}\n",
        text=True,
        check=True,
    )
