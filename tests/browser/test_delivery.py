"""A receiver in an operator's hand, in a browser: it is paused with a reason, resumed, and tried now."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness.browser import NARROW, Visit
from harness.processes.operated_daemon import Daemon
from harness.processes.operated_service import NOTIFICATION, OperatedService, envelope_line
from harness.scripted_receiver import OK, Reply, ScriptedReceiver, scripted_receiver
from harness.waiting import wait_until
from playwright.sync_api import Browser

from tests.browser.stage import address_of

pytestmark = pytest.mark.slow


@pytest.fixture
def receiving() -> Iterator[ScriptedReceiver]:
    with scripted_receiver() as receiver:
        yield receiver


@pytest.fixture
def service(tmp_path_factory: pytest.TempPathFactory, receiving: ScriptedReceiver) -> Iterator[OperatedService]:
    made = OperatedService(
        tmp_path_factory.mktemp("delivered"),
        f"{NOTIFICATION}.http.port=0",
        f'{NOTIFICATION}.delivery.receivers.tracker.url = "{receiving.url}"',
        f"{NOTIFICATION}.delivery.receivers.tracker.suspension {{ probe = 1h, most = 2h }}",
    )
    try:
        Daemon(made).start()
        yield made
    finally:
        made.verb("stop")


def test_a_receiver_is_paused_resumed_and_tried_now(
    browser: Browser, service: OperatedService, receiving: ScriptedReceiver
) -> None:
    receiving.answers = lambda _key, _id, _nth: Reply(503, {"retry-after": "3600"})
    page = "/delivery/receiver?name=tracker"

    def order(button: str) -> None:
        visit.open(page)
        visit.page.get_by_label("Reason").fill("it is <repaired>")
        visit.page.get_by_role("button", name=button, exact=True).click()
        visit.page.get_by_role("link", name="Back to receiver tracker").click()

    with Visit(browser, address_of(service), NARROW) as visit:
        order("Pause")
        wait_until(lambda: "Paused by local since" in visit.main, "the page says who and why")
        assert "it is <repaired>. No call begins" in visit.main
        service.append(envelope_line("u", 1))
        wait_until(lambda: (visit.open(page), "1 notification" in visit.main)[1], "it waits")
        assert receiving.calls == []
        assert (visit.overflow, visit.barriers) == (0, [])
        order("Resume")
        wait_until(lambda: len(receiving.calls) == 1, "it is called")
        wait_until(lambda: (visit.open(page), "The gate is shut" in visit.main)[1], "the gate is shut for an hour")
        receiving.answers = lambda _key, _id, _nth: OK
        order("Try now")
        wait_until(lambda: (visit.open(page), "The gate is open" in visit.main)[1], "the receiver was awake")
        assert [each.status for each in receiving.calls] == [503, 201]
        assert visit.complaints == []
