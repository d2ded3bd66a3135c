"""Makes docs/console.png anew: `PYTHONPATH=tests .venv/bin/python -m tests.browser.picture`."""

import tempfile
from pathlib import Path

from harness.browser import running_browser
from harness.processes.operated_service import NOTIFICATION, RESEQUENCER, OperatedService
from harness.waiting import wait_until

from tests.browser.stage import address_of

_PICTURE = Path(__file__).parents[2] / "docs" / "console.png"
_WIDTH, _HEIGHT, _SCALE = 1250, 612, 0.8
"""Of the window, in CSS pixels, and of the picture."""
_KEYS = (f"{NOTIFICATION}.http.port=0", f"{NOTIFICATION}.http.metrics.port=0", f"{RESEQUENCER}.stash-timeout=20m")
_PAYMENTS = ("--units", "250", "--rate", "60/s", "--losses", "3%", "--late", "0", "--seed", "1", "--partitions", "4")


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        service = OperatedService(Path(directory), *_KEYS)
        try:
            service.verb("start", seconds=90)
            service.verb("simulate", *_PAYMENTS, seconds=300)
            with running_browser() as browser:
                size = {"width": _WIDTH, "height": _HEIGHT}
                page = browser.new_page(viewport=size, device_scale_factor=_SCALE, color_scheme="light")
                address = address_of(service)
                wait_until(lambda: page.goto(f"{address}/waiting") and page.locator("tbody th.id").count(), "something waits")
                page.screenshot(path=_PICTURE)
        finally:
            service.verb("stop")


if __name__ == "__main__":
    main()
