"""The pages of a user's own store in a browser, on a live service in files; and who may open a web socket from a page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from harness.browser import NARROW, WIDE, Visit
from harness.processes.operated_daemon import Daemon
from harness.processes.operated_service import NOTIFICATION, OperatedService
from harness.recipes import ROOT, Recipe
from harness.waiting import wait_until
from playwright.sync_api import Browser

from notification_service.aggregation.commands import FileCommands
from tests.browser.stage import address_of

pytestmark = pytest.mark.slow
HOSTILE = "<img src=x onerror=alert(1)>&amp;\"'</script>"
CONF = "conf/import-jobs.conf"
PAGES = ("/stores", "/stores/jobs", "/stores/jobs?text=nothing", "/stores/jobs/value?key=request-007")
LISTEN = """address => new Promise(done => {
  const socket = new WebSocket(address.replace("http", "ws") + "/api/v1/stores/jobs/socket?after=0:0");
  socket.onmessage = event => done(JSON.parse(event.data).event);
  socket.onclose = () => done("refused");
})"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatedService]:
    directory = tmp_path_factory.mktemp("service")
    Recipe("a store of your own").write(directory)
    shutil.copy(ROOT / "conf" / "application.conf", directory / "conf")
    made = OperatedService(directory, f"{NOTIFICATION}.http.port=0", f"{NOTIFICATION}.http.metrics.port=0", config=CONF)
    commands = FileCommands(made.run_directory / "groups" / "jobs" / "commands")
    for number in range(60):
        for job in range(2):
            commands.update(f"request-{number:03}", f"job-{job}", b'{"jobs": 2, "contacts": 100}')
    commands.update(f"request-{HOSTILE}", HOSTILE, b'{"jobs": 1, "contacts": 1}')
    Daemon(made).start()
    yield made
    made.verb("stop")


@pytest.fixture
def visit(browser: Browser, service: OperatedService) -> Iterator[Visit]:
    with Visit(browser, address_of(service)) as made:
        wait_until(lambda: made.open("/stores/jobs") and "request-007" in made.main, "the commands are applied")
        yield made


def test_a_value_is_found_by_its_key_and_each_page_fits_and_has_no_barrier(
    browser: Browser, service: OperatedService, visit: Visit
) -> None:
    visit.page.get_by_role("link", name="Next page").click()
    visit.page.wait_for_url("**after=**")
    visit.page.get_by_label("Key (a part)").fill("QUEST-00")
    visit.press("Enter")
    visit.page.wait_for_url("**text=QUEST-00")
    visit.page.get_by_role("link", name="request-007").click()
    visit.page.wait_for_url("**key=request-007")
    assert '"contacts": 200' in visit.main
    assert "job-1" in visit.main
    assert "Not known: files keep a value as it is now" in visit.main
    assert visit.complaints == []
    found = {}
    for width, scheme in ((NARROW, "dark"), (WIDE, "light")):
        with Visit(browser, address_of(service), width, scheme) as looked:
            for path in PAGES:
                looked.open(path)
                found[path, width] = (looked.overflow, looked.barriers)
            assert looked.complaints == []
    assert {look: flaws for look, flaws in found.items() if flaws != (0, [])} == {}


def test_a_page_of_the_console_may_open_a_web_socket_and_one_of_another_origin_may_not(
    browser: Browser, service: OperatedService, visit: Visit
) -> None:
    assert visit.page.evaluate(LISTEN, address_of(service)) == "begin"
    foreign = browser.new_page()
    try:
        assert foreign.evaluate(LISTEN, address_of(service)) == "refused"
    finally:
        foreign.close()
