"""What the browser's tests rely on: a page that is too wide, has a barrier or breaks its policy is noticed."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from harness.browser import NARROW, Visit, running_browser

from servers.server import ProgramMissing

pytestmark = pytest.mark.slow

FLAWED = b"""<!doctype html><title>Flawed</title><main>
<p style="width: 500px">Wider than a telephone</p><img src="/nothing"><script>alert(1)</script>
<a href="/" tabindex="-1">Nowhere</a></main>"""


class _Flawed(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(500 if self.path == "/nothing" else 200)
        self.send_header("Content-Security-Policy", "script-src 'self'")
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(FLAWED)

    def log_message(self, *arguments: object) -> None:
        """Nothing is printed."""


@pytest.fixture
def address() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Flawed) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_flaws_of_a_page_are_noticed(address: str) -> None:
    try:
        with running_browser() as browser, Visit(browser, address, NARROW) as visit:
            visit.open("/flawed")
            assert visit.overflow > 0
            assert {each.partition(":")[0] for each in visit.barriers} == {"html-has-lang", "image-alt"}
            assert any("Content Security Policy" in each for each in visit.complaints)
            assert any(each.endswith("/nothing: 500") for each in visit.complaints)
            with pytest.raises(AssertionError, match="Tab does not reach the link 'Nowhere'"):
                visit.tab_to("link", "Nowhere", most=3)
    except ProgramMissing as missing:
        pytest.skip(str(missing))
