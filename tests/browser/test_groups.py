"""The pages of groups in a browser, on a live service in files: they fit, have no barrier, follow what happens, and close one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from harness.browser import NARROW, WIDE, Visit
from harness.processes.operated_daemon import Daemon
from harness.processes.operated_service import NOTIFICATION, OperatedService
from harness.waiting import wait_until
from playwright.sync_api import Browser

from notification_service.aggregation.commands import FileCommands
from notification_service.aggregation.payments.commands import StatedInstruction, StatedMessage, StatusFact
from tests.browser.stage import address_of

pytestmark = pytest.mark.slow
HOSTILE = "<img src=x onerror=alert(1)>&amp;\"'</script>"
LARGE, ODD, ONE = "LARGE", "ODD", "ONE"
PAGES = ("/", "/groups", "/groups?state=problems", "/groups?text=nobody", f"/groups/{LARGE}", f"/groups/{ODD}/closing")
LOOKS = ((NARROW, "dark"), (WIDE, "light"))


class Stage:
    """A service that runs. `status` gives the status of a payment, as the service itself gives it."""

    def __init__(self, directory: Path) -> None:
        http = (f"{NOTIFICATION}.http.port=0", f"{NOTIFICATION}.http.metrics.port=0")
        self.service = OperatedService(directory, *http, f"{NOTIFICATION}.aggregation.enabled=true")
        self._commands = FileCommands(self.service.run_directory / "facts")
        for number in range(150):
            status = "ACCC" if number < 90 else "ACSP" if number < 130 else "RJCT"
            self.status(LARGE, f"pay-{number:03}", status, 200, f"P-{number % 3}")
        self.status(ODD, HOSTILE, "ACSP", None)
        self.status(ONE, "one", "ACSP", 1)
        Daemon(self.service).start()
        self.address = address_of(self.service)

    def status(self, group: str, unit: str, status: str, total: int | None, instruction: str | None = None) -> None:
        total_text = None if total is None else str(total)
        fact = StatusFact(
            unit,
            status,
            amount="1234.56",
            currency="EUR",
            original=StatedMessage(f"M-{group}", "pain.001.001.09", None, total_text),
            instruction=None if instruction is None else StatedInstruction(instruction),
            party=msgspec.Raw(msgspec.json.encode({"Nm": HOSTILE})),
        )
        self._commands.update(group, unit, msgspec.json.encode(fact))


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    made = Stage(tmp_path_factory.mktemp("service"))
    yield made
    made.service.verb("stop")


@pytest.fixture
def visit(browser: Browser, stage: Stage) -> Iterator[Visit]:
    with Visit(browser, stage.address) as made:
        made.open("/groups")
        wait_until(lambda: made.open("/groups") and "M-LARGE" in made.main, "the groups are counted")
        yield made


def test_every_page_of_groups_fits_has_no_barrier_and_complains_of_nothing(browser: Browser, stage: Stage, visit: Visit) -> None:
    """Barriers, which cost most, are looked for once on each page, by turns in either look."""
    assert "M-ODD" in visit.main
    found = {}
    for turn, (width, scheme) in enumerate(LOOKS):
        with Visit(browser, stage.address, width, scheme) as looked:
            for number, path in enumerate(PAGES):
                looked.open(path)
                found[path, width, scheme] = (looked.overflow, looked.barriers if number % len(LOOKS) == turn else [])
            assert looked.complaints == []
    assert {look: flaws for look, flaws in found.items() if flaws != (0, [])} == {}


def test_without_script_the_pages_have_the_same_figures(browser: Browser, stage: Stage, visit: Visit) -> None:
    del visit
    parts: dict[bool, list[list[str]]] = {True: [], False: []}
    for script, found in parts.items():
        with Visit(browser, stage.address, script=script) as looked:
            for path in PAGES[1:]:
                looked.open(path)
                found.append(looked.page.locator("h1, dt, tbody th, .count, button:not([data-script])").all_inner_texts())
    assert parts[False] == parts[True]


def test_an_open_page_learns_that_a_group_is_through(visit: Visit, stage: Stage) -> None:
    row = visit.page.locator(f'[data-group="{ONE}"]')
    assert "open" in row.inner_text()
    visit.page.evaluate("window.isTheSame = true")
    stage.status(ONE, "one", "ACCC", 1)
    wait_until(lambda: "complete" in row.inner_text(), "the row says so", look_seconds=0.1)
    wait_until(lambda: row.locator("rect.done").count() == 1, "its bar, too", look_seconds=0.1)
    assert visit.page.evaluate("window.isTheSame"), "without loading the page again"
    assert visit.complaints == []


def test_a_group_is_found_paged_through_and_closed_by_keyboard(visit: Visit, stage: Stage) -> None:
    visit.page.get_by_label("Message, key or sender").fill("large")
    visit.press("Enter")
    visit.page.wait_for_url("**text=large**")
    visit.page.get_by_role("link", name="M-LARGE").click()
    assert "not there yet" in visit.main
    visit.page.get_by_role("link", name="Next page").click()
    visit.page.wait_for_url("**after=**")
    assert "pay-149" in visit.main
    visit.open(f"/groups/{ODD}")
    visit.tab_to("link", "Close the group …")
    visit.press("Enter")
    visit.page.wait_for_url("**/closing")
    visit.page.get_by_label("Reason").fill("the sender called us")
    visit.tab_to("button", "Close the group")
    visit.press("Enter")
    visit.page.wait_for_url(f"**/groups/{ODD}")
    wait_until(lambda: "closed by local: the sender called us" in visit.main, "it is closed", look_seconds=0.2)
    assert "1 report sent" in visit.main
    assert visit.complaints == []
    assert stage.address in visit.page.url
