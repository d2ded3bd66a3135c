"""A browser that looks at the console, and notes whatever it complains of."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from harness.waiting import DEADLINE_SECONDS
from playwright.sync_api import Browser, ConsoleMessage, Page, Response, sync_playwright

from servers.programs import find_chromium

NARROW, WIDE = 400, 1400
"""Widths of a telephone and of a screen, in CSS pixels."""

_AXE = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}, "resultTypes": ["violations"]}
_TIMEOUT_MS = 1_000 * DEADLINE_SECONDS


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Run a Chromium of our own. Until it ends, no other event loop can run in this thread.

    Raises:
        ProgramMissing: There is no Chromium.
    """
    program = find_chromium()
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        yield browser
        browser.close()


class Visit:
    """One window on a console.

    `complaints` are errors and warnings of scripts, what the content security policy refused, and answers from 500 on.
    """

    def __init__(
        self, browser: Browser, address: str, width: int = WIDE, scheme: str = "light", *, script: bool = True, zone: str = "UTC"
    ) -> None:
        self.address = address
        self.complaints: list[str] = []
        self._context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=script, timezone_id=zone
        )
        self._context.set_default_timeout(_TIMEOUT_MS)
        self.page: Page = self._context.new_page()
        self.page.on("console", self._note_message)
        self.page.on("pageerror", lambda error: self.complaints.append(f"{self.page.url}: {error}"))
        self.page.on("response", self._note_answer)

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, *_: object) -> None:
        self._context.close()

    def open(self, path: str) -> Response:
        """Open the page, which must answer with 200."""
        answer = self.page.goto(f"{self.address}{path}")
        assert answer is not None
        assert answer.status == 200, f"{path}: {answer.status}"
        return answer

    @property
    def main(self) -> str:
        """The text of the page's main part."""
        return self.page.locator("main").inner_text()

    @property
    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        found: int = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        return found

    @property
    def barriers(self) -> list[str]:
        """What axe finds against WCAG 2.1, levels A and AA: its rule and the elements."""
        found: list[dict[str, Any]] = Axe().run(self.page, options=_AXE).response["violations"]
        return [f"{each['id']}: {each['help']}: {[node['html'] for node in each['nodes']]}" for each in found]

    def press(self, *keys: str) -> None:
        for each in keys:
            self.page.keyboard.press(each)

    def tab_to(self, role: Any, name: str, most: int = 60) -> None:
        """Press Tab until the element with this role and accessible name has the focus."""
        wanted = self.page.get_by_role(role, name=name, exact=True)
        for _ in range(most):
            self.press("Tab")
            if wanted.evaluate("each => each === document.activeElement"):
                return
        raise AssertionError(f"Tab does not reach the {role} {name!r}")

    def _note_message(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{self.page.url}: {message.text}")

    def _note_answer(self, answer: Response) -> None:
        if answer.status >= 500:
            self.complaints.append(f"{answer.url}: {answer.status}")
