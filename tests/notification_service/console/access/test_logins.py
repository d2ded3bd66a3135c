"""Who may use the console: users with passwords, programs with tokens, proxies that name people."""

from __future__ import annotations

import asyncio
import base64
import stat
from contextlib import closing
from pathlib import Path
from threading import Event

import httpx
import pytest
from harness.console_stage import URL, client_of, http_settings, make_sources
from harness.service_under_test import FakeClock
from harness.waiting import DEADLINE_SECONDS
from starlette.requests import HTTPConnection
from starlette.testclient import TestClient

from notification_service.console.access.identity import Role
from notification_service.console.access.layer import COOKIE
from notification_service.console.access.logins import BasicLogin, BearerLogin, ProxyLogin
from notification_service.console.access.settings import TrustedProxy
from notification_service.console.access.users_file import User, UsersFile, UsersFileUnusable
from notification_service.console.application import make_application
from notification_service.console.context import Console
from resequencer.clock import SteadyClock

YEAR = 365 * 86_400_000
PASSWORD = "correct horse battery"


def basic(name: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


@pytest.fixture
def users(tmp_path: Path) -> UsersFile:
    return UsersFile(tmp_path / "users.json")


@pytest.mark.slow
def test_a_user_with_the_right_password_is_let_in_by_name_and_others_are_asked_to_log_in(
    tmp_path: Path, users: UsersFile
) -> None:
    users.set_password("zoë", PASSWORD, (Role.VIEWER,))
    client = client_of(make_sources(tmp_path), BasicLogin(users, FakeClock()), auth="basic")
    assert "zoë" in client.get("/", headers=basic("zoë", PASSWORD)).text
    for headers in ({}, basic("zoë", "wrong"), basic("zoë", ""), basic("zoe", PASSWORD), {"Authorization": "Basic !"}):
        answer = client.get("/", headers=headers)
        assert answer.status_code == 401
        assert answer.headers["WWW-Authenticate"].startswith("Basic")
        assert "Resequencer" not in answer.text


@pytest.mark.slow
def test_a_changed_password_counts_at_once_and_a_removed_user_is_out(tmp_path: Path, users: UsersFile) -> None:
    users.set_password("ann", PASSWORD, (Role.VIEWER,))
    client = client_of(make_sources(tmp_path), BasicLogin(UsersFile(tmp_path / "users.json"), FakeClock()), auth="basic")
    assert client.get("/", headers=basic("ann", PASSWORD)).status_code == 200
    users.set_password("ann", "another password", (Role.VIEWER,))
    assert client.get("/", headers=basic("ann", PASSWORD)).status_code == 401
    assert client.get("/", headers=basic("ann", "another password")).status_code == 200
    assert users.remove("ann")
    assert client.get("/", headers=basic("ann", "another password")).status_code == 401
    assert not users.remove("ann")


@pytest.mark.slow
def test_wrong_logins_are_slowed_down_by_address(tmp_path: Path, users: UsersFile) -> None:
    users.set_password("ann", PASSWORD, (Role.VIEWER,))
    clock = FakeClock()
    client = client_of(make_sources(tmp_path, clock=clock), BasicLogin(users, clock), auth="basic")
    answers = [client.get("/", headers=basic("ann", f"guess {n}")).status_code for n in range(12)]
    assert answers == [401] * 10 + [429] * 2
    assert client.get("/", headers=basic("ann", PASSWORD)).status_code == 429, "a right guess would tell the attacker"
    clock.advance(60_000)
    assert client.get("/", headers=basic("ann", PASSWORD)).status_code == 200


@pytest.mark.slow
def test_wrong_logins_while_the_clock_is_wrong_lock_nobody_out_for_longer(tmp_path: Path, users: UsersFile) -> None:
    users.set_password("ann", PASSWORD, (Role.VIEWER,))
    clock, passed = FakeClock(), FakeClock()
    sources = make_sources(tmp_path, clock=clock)._replace(steady_clock=SteadyClock(clock.now, passed.now))
    client = client_of(sources, BasicLogin(users, clock), auth="basic")
    clock.advance(YEAR)
    answers = [client.get("/", headers=basic("ann", f"guess {n}")).status_code for n in range(11)]
    assert answers == [401] * 10 + [429]
    clock.advance(60_000 - YEAR)
    passed.advance(60_000)
    assert client.get("/", headers=basic("ann", PASSWORD)).status_code == 200


@pytest.mark.slow
def test_guesses_that_are_hashed_hold_up_no_other_request_and_further_ones_are_refused(
    tmp_path: Path, users: UsersFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guesses of many clients behind a proxy, with another name each, so that none of them is slowed down by its name."""
    users.set_password("ann", PASSWORD, (Role.VIEWER,))
    clock, may_end = FakeClock(), Event()
    login = BasicLogin(users, clock)
    settings = http_settings(tmp_path, auth="basic", proxy=TrustedProxy(("10.0.0.1",), "-", "-"))
    with closing(Console(settings, make_sources(tmp_path, clock=clock))) as console:
        application = make_application(console, login)

        async def ask(client: str, name: str, password: str) -> httpx.Response:
            transport = httpx.ASGITransport(application, client=("10.0.0.1", 1))
            async with httpx.AsyncClient(transport=transport, base_url=URL) as asking:
                return await asking.get("/", headers=basic(name, password) | {"X-Forwarded-For": client})

        async def guess() -> None:
            assert (await ask("10.9.9.9", "ann", PASSWORD)).status_code == 200
            monkeypatch.setattr(User, "has_password", lambda *_: may_end.wait(DEADLINE_SECONDS) and False)
            async with asyncio.TaskGroup() as tasks:
                guesses = [tasks.create_task(ask(f"10.1.{n % 20}.1", f"name {n}", "guess")) for n in range(200)]
                pending = set(guesses)
                while len(pending) > 20:
                    _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                refused = set(guesses) - pending
                assert {each.result().status_code for each in refused} == {503}
                assert {each.result().headers["Retry-After"] for each in refused} == {"1"}
                assert (await ask("10.9.9.9", "ann", PASSWORD)).status_code == 200, "it was right before"
                may_end.set()
            assert sorted(each.result().status_code for each in guesses) == [401] * 20 + [503] * 180

        asyncio.run(guess())


@pytest.mark.slow
def test_wrong_logins_lock_out_no_other_user_no_other_client_of_the_proxy_and_no_known_browser(
    tmp_path: Path, users: UsersFile
) -> None:
    for name in ("ann", "bob"):
        users.set_password(name, PASSWORD, (Role.VIEWER,))
    clock = FakeClock()
    sources = make_sources(tmp_path, clock=clock)
    proxy = TrustedProxy(("10.0.0.1/32",), "X-Forwarded-User", "X-Forwarded-Roles")
    settings = http_settings(tmp_path, auth="basic", proxy=proxy)
    application = make_application(Console(settings, sources), BasicLogin(users, clock))

    def status(name: str, password: str, forwarded_for: str, cookie: str = "") -> int:
        client = TestClient(application, base_url=URL, client=("10.0.0.1", 1), cookies={COOKIE: cookie} if cookie else {})
        answer = client.get("/", headers={**basic(name, password), "X-Forwarded-For": forwarded_for})
        marks.append(answer.cookies.get(COOKIE, ""))
        return answer.status_code

    marks: list[str] = []
    assert status("ann", PASSWORD, "203.0.113.1") == 200
    mark = marks[0]
    assert [status("ann", "guess", "203.0.113.1") for _ in range(11)] == [401] * 10 + [429]
    assert status("ann", PASSWORD, "203.0.113.1") == 429
    assert status("bob", PASSWORD, "203.0.113.1") == 200
    assert status("ann", PASSWORD, "203.0.113.2") == 200
    assert status("ann", PASSWORD, "203.0.113.1", mark) == 200, "her browser is known, also while others guess beside her"
    assert status("bob", PASSWORD, "203.0.113.1", mark) == 200
    assert [status("bob", "guess", "203.0.113.3", mark) for _ in range(11)][-1] == 429, "the mark of another user counts nothing"
    assert [status("ann", "guess", "203.0.113.4", mark) for _ in range(11)][-1] == 429, "nor does a mark let one guess for ever"


def test_a_token_lets_a_program_in_and_only_its_hash_is_kept(tmp_path: Path, users: UsersFile) -> None:
    token = users.make_token("scraper", (Role.OPERATOR,))
    assert token not in (tmp_path / "users.json").read_text()
    assert stat.S_IMODE((tmp_path / "users.json").stat().st_mode) == 0o600
    client = client_of(make_sources(tmp_path), BearerLogin(users), auth="bearer")
    assert client.get("/", headers={"Authorization": f"Bearer {token}"}).status_code == 200
    assert client.get("/", headers={"Authorization": f"Bearer {token}x"}).status_code == 401
    assert client.get("/", headers={"Authorization": f"Basic {token}"}).status_code == 401
    users.make_token("scraper", (Role.VIEWER,))
    assert client.get("/", headers={"Authorization": f"Bearer {token}"}).status_code == 401, "it was replaced"


@pytest.mark.parametrize("content", [b"", b"[]", b'{"version": 2}', b'{"users": {"a": {"roles": ["root"]}}}', b"\xff"])
def test_a_users_file_that_cannot_be_used_is_named_and_lets_no_user_in(tmp_path: Path, users: UsersFile, content: bytes) -> None:
    (tmp_path / "users.json").write_bytes(content)
    with pytest.raises(UsersFileUnusable, match=r"users\.json"):
        users.read()
    client = client_of(make_sources(tmp_path), BasicLogin(users, FakeClock()), auth="basic")
    assert client.get("/", headers=basic("a", PASSWORD)).status_code == 503


def connection(address: str, *headers: tuple[str, str]) -> HTTPConnection:
    raw = [(name.lower().encode(), value.encode()) for name, value in headers]
    return HTTPConnection({"type": "http", "headers": raw, "client": (address, 1234)})


PROXY = ProxyLogin(TrustedProxy(("10.0.0.0/8", "::1/128"), "X-Forwarded-User", "X-Forwarded-Roles"))


def test_a_trusted_proxy_names_the_user_and_the_roles() -> None:
    found = asyncio.run(
        PROXY.find_identity(connection("10.1.2.3", ("X-Forwarded-User", "ann"), ("X-Forwarded-Roles", "operator, sales")))
    )
    assert found is not None
    assert (found.name, found.roles) == ("ann", {Role.OPERATOR})
    assert found.may(Role.VIEWER)
    assert not found.may(Role.PAYMENTS)


@pytest.mark.parametrize(
    "asked",
    [
        connection("192.168.0.1", ("X-Forwarded-User", "ann"), ("X-Forwarded-Roles", "operator")),
        connection("10.1.2.3"),
        connection("10.1.2.3", ("X-Forwarded-User", " ")),
        connection("10.1.2.3", ("X-Forwarded-User", "ann"), ("X-Forwarded-User", "root")),
        connection("no address", ("X-Forwarded-User", "ann")),
    ],
)
def test_another_address_or_an_unclear_header_gets_nothing(asked: HTTPConnection) -> None:
    assert asyncio.run(PROXY.find_identity(asked)) is None


def test_roles_that_are_sent_twice_are_no_roles() -> None:
    headers = ("X-Forwarded-User", "ann"), ("X-Forwarded-Roles", "viewer"), ("X-Forwarded-Roles", "operator")
    found = asyncio.run(PROXY.find_identity(connection("::1", *headers)))
    assert found is not None
    assert found.roles == frozenset()
