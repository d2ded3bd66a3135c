"""Makes docs/console.png and docs/delivery.png anew: `PYTHONPATH=tests .venv/bin/python -m tests.browser.picture`."""

import tempfile
from pathlib import Path

from harness.browser import running_browser
from harness.processes.operated_service import NOTIFICATION, RESEQUENCER, OperatedService
from harness.waiting import wait_until
from playwright.sync_api import Page

from servers.receiver.server import ReceiverServer
from tests.browser.stage import address_of

_DOCS = Path(__file__).parents[2] / "docs"
_SCALE = 0.8
_KEYS = (f"{NOTIFICATION}.http.port=0", f"{NOTIFICATION}.http.metrics.port=0", f"{RESEQUENCER}.stash-timeout=20m")
_PAYMENTS = ("--units", "250", "--rate", "60/s", "--losses", "3%", "--late", "0", "--seed", "1", "--partitions", "4")


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        receiver = ReceiverServer(Path(directory) / "receiver").start()
        tracker = f'{{ url = "{receiver.url}", live = false, rate = 60/s, suspension.when.body = "currently suspended" }}'
        service = OperatedService(Path(directory), *_KEYS, f"{NOTIFICATION}.delivery.receivers.tracker={tracker}")
        try:
            service.verb("start", seconds=90)
            service.verb("simulate", *_PAYMENTS, seconds=300)
            service.verb("delivery", "start", "monday", "tracker", str(service.out_directory / "notifications.jsonl"))
            with running_browser() as browser:
                page = browser.new_page(device_scale_factor=_SCALE, color_scheme="light")
                _take_waiting(page, address_of(service))
                receiver.behave(asleep=True)
                _take_delivery(page, address_of(service))
        finally:
            service.verb("stop")
            receiver.stop()


def _take_waiting(page: Page, address: str) -> None:
    page.set_viewport_size({"width": 1250, "height": 612})
    wait_until(lambda: page.goto(f"{address}/waiting") and page.locator("tbody th.id").count(), "something waits")
    page.screenshot(path=_DOCS / "console.png")


def _take_delivery(page: Page, address: str) -> None:
    page.set_viewport_size({"width": 1250, "height": 560})
    wait_until(lambda: page.goto(f"{address}/delivery") and "currently suspended" in page.inner_text("main"), "the gate is shut")
    page.screenshot(path=_DOCS / "delivery.png")


if __name__ == "__main__":
    main()
