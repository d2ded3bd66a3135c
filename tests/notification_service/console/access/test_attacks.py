"""What another site, another user or a bad client may try, and what it gets."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from harness.console_stage import URL, client_of, http_settings, make_sources
from harness.service_under_test import FakeClock
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.testclient import TestClient

from notification_service.console.access.identity import Identity, NoLogin, Role
from notification_service.console.access.layer import AccessLayer, BodyTooLarge, FormTokens, Limits, TokenRefused, route
from notification_service.console.application import error_handlers
from notification_service.console.context import Console
from resequencer.clock import SteadyClock

YEAR = 365 * 86_400_000
ANN = Identity("ann", frozenset({Role.OPERATOR}), sends_by_itself=True)


class Login:
    """Lets one identity in, whatever the request says."""

    challenge = None

    def find_claimed_name(self, connection: object) -> None:
        del connection

    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    async def find_identity(self, connection: object) -> Identity:
        del connection
        return self._identity


class Shop:
    """An application with one form that changes something."""

    def __init__(self, directory: Path, identity: Identity = ANN, limits: Limits | None = None) -> None:
        self.clock = FakeClock()
        self.console = Console(http_settings(directory), make_sources(directory, clock=self.clock))
        self.tokens = self.console.tokens
        self.changes: list[dict[str, str]] = []
        layer = Middleware(AccessLayer, authenticator=Login(identity), passed=self.clock.now, limits=limits or Limits())
        routes = [route("/change", self._change, needs=Role.OPERATOR, name="change", tokens=self.tokens)]
        handlers: Any = error_handlers(self.console)
        app = Starlette(routes=routes, middleware=[layer], exception_handlers=handlers)
        self.client = TestClient(app, base_url=URL, raise_server_exceptions=False)
        self.identity = identity

    def _change(self, request: Request) -> Response:
        self.changes.append(dict(request.state.form))
        self.console.audit_log.note(request, "change", what=request.state.form.get("what", ""))
        return PlainTextResponse("changed")

    def post(self, *, token: str | None = None, **headers: str) -> Response:
        fields = {"what": "x", **({} if token is None else {"form-token": token})}
        answer: Response = self.client.post("/change", data=fields, headers={k.replace("_", "-"): v for k, v in headers.items()})
        return answer


def test_a_form_of_this_console_changes_something_once(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    token = shop.tokens.make(ANN)
    assert shop.post(token=token, Origin=URL, Sec_Fetch_Site="same-origin").status_code == 200
    replayed = shop.post(token=token, Origin=URL)
    assert (replayed.status_code, len(shop.changes)) == (403, 1)
    assert "was sent before" in replayed.text  # type: ignore[attr-defined]


def test_a_form_of_another_site_changes_nothing(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    token = shop.tokens.make(ANN)
    assert shop.post().status_code == 403
    assert shop.post(token="forged.9999999999999.00").status_code == 403
    assert shop.post(token=token, Origin="https://evil.example").status_code == 403
    assert shop.post(token=token, Origin="null").status_code == 403
    assert shop.post(token=token, Sec_Fetch_Site="cross-site").status_code == 403
    assert shop.changes == []
    assert shop.post(token=token).status_code == 200, "none of them has used the token up"


def test_a_token_is_one_users_and_one_consoles_and_for_two_hours() -> None:
    clock = FakeClock()
    tokens, other = FormTokens(clock.now), FormTokens(clock.now)
    eve = ANN._replace(name="eve")
    for refused in (lambda: tokens.take(eve, tokens.make(ANN)), lambda: other.take(ANN, tokens.make(ANN))):
        with pytest.raises(TokenRefused, match="not yours"):
            refused()
    old = tokens.make(ANN)
    clock.advance(2 * 3_600_000 + 1)
    with pytest.raises(TokenRefused, match="two hours"):
        tokens.take(ANN, old)
    for damaged in ("", ".", "..", "a.b.c", "a.1.é", old[:-1]):
        with pytest.raises(TokenRefused):
            tokens.take(ANN, damaged)


def test_a_wall_clock_that_is_wrong_for_a_moment_neither_frees_used_tokens_nor_lets_them_live_longer(tmp_path: Path) -> None:
    clock, passed = FakeClock(), FakeClock()
    sources = make_sources(tmp_path, clock=clock)._replace(steady_clock=SteadyClock(clock.now, passed.now))
    with closing(Console(http_settings(tmp_path), sources)) as console:
        tokens = console.tokens
        used = tokens.make(ANN)
        tokens.take(ANN, used)
        clock.advance(YEAR)
        of_then = tokens.make(ANN)
        tokens.take(ANN, tokens.make(ANN))
        clock.advance(-YEAR)
        with pytest.raises(TokenRefused, match="was sent before"):
            tokens.take(ANN, used)
        for each in (clock, passed):
            each.advance(2 * 3_600_000 + 1)
        with pytest.raises(TokenRefused, match="two hours"):
            tokens.take(ANN, of_then)


def test_a_program_with_a_token_of_its_own_needs_no_form(tmp_path: Path) -> None:
    shop = Shop(tmp_path, ANN._replace(sends_by_itself=False))
    assert shop.post().status_code == 200


def test_without_the_role_nothing_is_changed(tmp_path: Path) -> None:
    viewer = Identity("eve", frozenset({Role.VIEWER, Role.PAYMENTS}), sends_by_itself=False)
    shop = Shop(tmp_path, viewer)
    answer = shop.post()
    assert (answer.status_code, shop.changes) == (403, [])
    assert "operator" in answer.text  # type: ignore[attr-defined]


def test_what_is_changed_is_in_the_audit_log_with_who_when_and_from_where(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.post(token=shop.tokens.make(ANN))
    (file,) = tmp_path.glob("console-audit-*.jsonl")
    line = json.loads(file.read_text())
    assert line == {"at": "2026-03-28T23:20:00.000Z", "by": "ann", "from": "testclient", "action": "change", "what": "x"}
    assert file.stat().st_mode & 0o777 == 0o600


def test_without_an_audit_line_nothing_is_done(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    (tmp_path / "console-audit-2026-03-28.jsonl").mkdir()
    answer = shop.post(token=shop.tokens.make(ANN))
    assert answer.status_code == 503
    assert "nothing was done" in answer.text  # type: ignore[attr-defined]


def test_a_foreign_name_of_this_machine_is_not_served_without_a_login(tmp_path: Path) -> None:
    client = client_of(make_sources(tmp_path), NoLogin())
    for host in ("127.0.0.1:8080", "localhost", "localhost:1", "[::1]:8080", "127.9.9.9"):
        assert client.get("/", headers={"Host": host}).status_code == 200, host
    for host in ("evil.example", "evil.example:8080", "10.0.0.1", "localhost.evil.example", "", "127.0.0.1.evil.example"):
        assert client.get("/", headers={"Host": host}).status_code == 421, host


def test_a_request_that_another_site_sends_in_the_background_is_refused_and_a_link_is_followed(tmp_path: Path) -> None:
    client = client_of(make_sources(tmp_path))
    for site in ("cross-site", "same-site"):
        for mode in ("no-cors", "cors", ""):
            assert client.get("/", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode}).status_code == 403
        link = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"}
        assert client.get("/", headers=link).status_code == 200
        assert client.get("/dead-letter/value?number=x", headers=link).status_code == 403, "payment data is never linked to"


def test_a_body_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    shop = Shop(tmp_path, limits=Limits(max_body_bytes=1_000))
    answer = shop.client.post("/change", data={"form-token": shop.tokens.make(ANN), "what": "x" * 2_000})
    assert (answer.status_code, shop.changes) == (413, [])
    assert "1,000 bytes" in str(BodyTooLarge(1_000))


def test_too_many_requests_from_one_address_are_refused_for_a_while(tmp_path: Path) -> None:
    clock = FakeClock()
    client = client_of(make_sources(tmp_path, clock=clock), limits=Limits(requests_at_once=5, requests_per_second=1))
    assert [client.get("/").status_code for _ in range(7)] == [200] * 5 + [429] * 2
    clock.advance(1_000)
    assert [client.get("/").status_code for _ in range(2)] == [200, 429]


@pytest.mark.parametrize(
    "path", ["/static/../settings.py", "/static/%2e%2e/settings.py", "/static/..%2f..%2fsetup.cfg", "/%00", "/nothing"]
)
def test_paths_that_lead_elsewhere_are_not_found_and_tell_nothing(tmp_path: Path, path: str) -> None:
    answer = client_of(make_sources(tmp_path)).get(path)
    assert answer.status_code == 404
    assert "Traceback" not in answer.text
    assert "class Http" not in answer.text


def test_every_answer_forbids_foreign_and_inline_script_and_frames(tmp_path: Path) -> None:
    client = client_of(make_sources(tmp_path))
    for path in ("/", "/nothing", "/static/style.css"):
        headers = client.get(path).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
    assert client.get("/").headers["Cache-Control"] == "no-store"


def test_an_error_of_the_console_shows_no_stack_trace(tmp_path: Path) -> None:
    def broken() -> None:
        raise RuntimeError("secret detail")

    sources = make_sources(tmp_path)._replace(find_report=broken)
    client = client_of(sources)
    client = TestClient(client.app, base_url=URL, raise_server_exceptions=False)
    answer = client.get("/")
    assert answer.status_code == 500
    assert "secret detail" not in answer.text
    assert "Traceback" not in answer.text
