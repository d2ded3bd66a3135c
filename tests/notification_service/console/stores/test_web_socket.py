"""The web socket of a store: each completion once, behind the place that is handed in, for those who may see the console."""

from __future__ import annotations

import base64
import json
import select
import socket
from collections.abc import Mapping
from contextlib import suppress
from threading import Event
from typing import Any

import pytest
from harness.api_stage import API, ApiStage, NamedRoles, serving
from harness.waiting import DEADLINE_SECONDS, async_wait_until, wait_until
from starlette.requests import HTTPConnection
from starlette.testclient import TestClient, WebSocketDenialResponse
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from notification_service.console import application as server
from notification_service.console.access.identity import Identity, NoLogin
from notification_service.console.access.layer import Limits
from notification_service.console.application import make_application

SOCKET = f"{API}/stores/jobs/socket"
ALL = {"x-roles": "viewer payments"}
BEGIN = "?after=0:0"
OWN = "ws://127.0.0.1:8080"


def opened(url: str, path: str = SOCKET, roles: str = "viewer payments", **options: Any) -> ClientConnection:
    return connect(
        f"{url.replace('http', 'ws')}{path}",
        additional_headers={"x-roles": roles},
        open_timeout=DEADLINE_SECONDS,
        proxy=None,
        compression=None,
        **options,
    )


def events(connection: ClientConnection, count: int) -> list[dict[str, Any]]:
    """The next completions."""
    found: list[dict[str, Any]] = []
    while len(found) < count:
        event = json.loads(connection.recv(DEADLINE_SECONDS))
        found += [event] if event["event"] == "completed" else []
    return found


def end_of(connection: ClientConnection) -> tuple[int, str]:
    """The code and the reason with which the console closes it."""
    with suppress(ConnectionClosed):
        while True:
            connection.recv(DEADLINE_SECONDS)
    assert connection.close_code is not None
    return connection.close_code, connection.close_reason or ""


@pytest.mark.slow
def test_who_resumes_behind_an_id_gets_each_completion_once(stage: ApiStage, url: str) -> None:
    for number in range(5):
        stage.jobs.finish(f"r{number}", 0)
    stage.jobs.count()
    found, place = list[str](), "0:0"
    while len(found) < 6:
        with opened(url, f"{SOCKET}?after={place}") as connection:
            for each in events(connection, min(2, 6 - len(found))):
                found.append(each["data"]["key"])
                place = each["id"]
    assert found == ["request-7", *(f"r{number}" for number in range(5))]
    with opened(url, f"{SOCKET}?after={place}", origin=url) as connection:
        assert json.loads(connection.recv(DEADLINE_SECONDS)) == {"id": place, "event": "begin", "data": None}
        stage.jobs.finish("later", 0)
        stage.jobs.count()
        (later,) = events(connection, 1)
    assert later["data"] == {"key": "later", "value": {"request": "later", "contacts": 100}, "is_hidden": False}
    lines = (stage.directory / "console-audit-2026-03-28.jsonl").read_text().splitlines()
    assert {(line["action"], line["store"]) for line in map(json.loads, lines)} == {("store.listen", "jobs")}


@pytest.mark.slow
def test_the_reports_on_groups_come_by_a_socket_too(stage: ApiStage, url: str) -> None:
    stage.groups.status("A", "a-1", total=1)
    stage.groups.count()
    with opened(url, f"{API}/stores/payments/socket{BEGIN}", roles="viewer") as connection:
        (event,) = events(connection, 1)
    assert (event["data"]["group"], event["data"]["status"]) == ("A", "ACCC")


@pytest.mark.slow
def test_who_sends_something_and_all_at_the_end_of_the_console_are_closed_with_a_reason(stage: ApiStage, url: str) -> None:
    with opened(url) as talking, opened(url) as listening:
        talking.send("hello")
        assert end_of(talking) == (1008, "a listener sends nothing")
        stage.console.end_streams()
        assert end_of(listening) == (1012, "the console ends; listen again behind the last id")
    wait_until(lambda: stage.console.listening.count == 0, "none is counted")


@pytest.mark.slow
def test_a_message_that_is_too_long_ends_the_connection_that_sent_it(url: str) -> None:
    with opened(url) as talking:
        talking.send("x" * 2_000)
        assert end_of(talking)[0] == 1009


@pytest.mark.slow
def test_a_socket_stays_open_where_a_connection_without_a_request_is_closed(
    stage: ApiStage, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_HEAD_SECONDS", 0.3)
    with opened(url) as connection:
        for _ in range(2):
            with socket.create_connection(address_of(url), DEADLINE_SECONDS) as silent:
                assert silent.recv(1) == b"", "it has had its time"
        stage.jobs.finish("later", 0)
        stage.jobs.count()
        assert events(connection, 1)[0]["data"]["key"] == "later"


# Hostile ones


def client(stage: ApiStage) -> TestClient:
    return TestClient(stage.application(), base_url="http://127.0.0.1:8080")


def refused(given: TestClient, path: str = SOCKET, headers: Mapping[str, str] = ALL) -> tuple[int, str]:
    with pytest.raises(WebSocketDenialResponse) as denied, given.websocket_connect(f"{OWN}{path}", headers=dict(headers)):
        pass
    return denied.value.status_code, denied.value.json()["error"]


def test_a_page_of_another_origin_opens_none(stage: ApiStage) -> None:
    foreign = ("http://evil.example", "https://127.0.0.1:8081", "http://127.0.0.1:8080.evil.example", "null", "")
    for origin in foreign:
        assert refused(client(stage), headers={**ALL, "Origin": origin})[0] == 403, origin
    assert refused(client(stage), headers={**ALL, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "websocket"})[0] == 403


def test_without_a_login_or_the_role_there_is_none(stage: ApiStage) -> None:
    assert refused(client(stage), headers={}) == (401, "log in")
    for roles in ("", "payments"):
        status, problem = refused(client(stage), headers={"x-roles": roles})
        assert (status, "needs the role viewer" in problem) == (403, True)


@pytest.mark.slow
def test_a_value_is_hidden_from_who_may_not_see_payment_data(stage: ApiStage, url: str) -> None:
    with opened(url, f"{SOCKET}{BEGIN}", roles="viewer") as listener:
        assert events(listener, 1)[0]["data"] == {"key": "request-7", "value": None, "is_hidden": True}
    assert not list(stage.directory.glob("console-audit-*"))


def test_more_than_may_listen_and_bad_places_and_unknown_stores_are_refused(stage: ApiStage) -> None:
    assert refused(client(stage), f"{SOCKET}?after=x")[0] == 400
    assert refused(client(stage), f"{SOCKET}?since=1")[0] == 400
    status, problem = refused(client(stage), f"{API}/stores/other/socket")
    assert (status, problem) == (404, "there is no store 'other'; known: payments, jobs")
    stage.console.listening.count = 100
    assert refused(client(stage))[0] == 503
    stage.console.listening.count = 0


def test_without_a_login_a_foreign_name_of_this_machine_gets_none(stage: ApiStage) -> None:
    local = TestClient(make_application(stage.console, NoLogin()), base_url="http://127.0.0.1:8080")
    assert refused(local, headers={"Host": "evil.example:8080", "Origin": "http://evil.example:8080"})[0] == 421


def test_too_many_attempts_of_one_address_are_refused(stage: ApiStage) -> None:
    limits = Limits(requests_at_once=2, requests_per_second=0.001)
    given = TestClient(make_application(stage.console, NoLogin(), limits), base_url="http://127.0.0.1:8080")
    assert [refused(given, f"{SOCKET}?after=x")[0] for _ in range(3)] == [400, 400, 429]


def address_of(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("http://").partition(":")
    return host, int(port)


def shaken(url: str, path: str) -> socket.socket:
    """A connection whose handshake is sent, and of which nothing is read."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    made.settimeout(DEADLINE_SECONDS)
    made.connect(address_of(url))
    key = f"Sec-WebSocket-Key: {base64.b64encode(bytes(16)).decode()}"
    lines = ("Host: 127.0.0.1", "Upgrade: websocket", "Connection: Upgrade", key, "x-roles: viewer payments")
    made.sendall("\r\n".join((f"GET {path} HTTP/1.1", *lines, "Sec-WebSocket-Version: 13", "", "")).encode())
    return made


def is_heard(stalled: socket.socket, text: bytes) -> bool:
    """Whether this has come; nothing is taken."""
    return text in stalled.recv(4_096, socket.MSG_PEEK)


@pytest.mark.slow
def test_who_takes_nothing_is_cut_off_with_a_reason_and_its_place_is_free(
    stage: ApiStage, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_SEND_SECONDS", 0.3)
    file = stage.jobs.directory / "out" / "completions.jsonl"
    file.write_bytes(file.read_bytes() * 60_000)
    with shaken(url, f"{SOCKET}{BEGIN}") as stalled:
        wait_until(lambda: is_heard(stalled, b"begin"), "it listens")
        wait_until(lambda: stage.console.listening.count == 0, "it is cut off")
        received = b"".join(iter(lambda: stalled.recv(1 << 20), b""))
    assert received.endswith(b"you take nothing; listen again behind the last id")


@pytest.mark.slow
def test_who_sends_pings_and_reads_no_answer_is_read_no_more(url: str) -> None:
    """Else the answers would fill the memory."""
    ping = (b"\x89\xfd" + bytes(4 + 125)) * 500
    with shaken(url, SOCKET) as stalled:
        wait_until(lambda: is_heard(stalled, b"begin"), "it listens")
        stalled.setblocking(False)
        sent = 0
        while select.select([], [stalled], [], 2.0)[1]:
            sent += stalled.send(ping)
            assert sent < 64 << 20
    assert sent > 0


class SlowLogin(NamedRoles):
    """Which is not checked before `is_checked` is set."""

    def __init__(self) -> None:
        self.is_checked = Event()

    async def find_identity(self, connection: HTTPConnection) -> Identity | None:
        await async_wait_until(self.is_checked.is_set, "the login is checked")
        return await super().find_identity(connection)


@pytest.mark.slow
def test_who_sends_before_it_has_an_answer_is_let_go(stage: ApiStage, caplog: pytest.LogCaptureFixture) -> None:
    login = SlowLogin()
    with serving(make_application(stage.console, login)) as url:
        with shaken(url, SOCKET) as hasty, suppress(ConnectionError):
            while hasty.send(b"\x89\xfd" + bytes(4 + 125)):
                pass
        login.is_checked.set()
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_what_is_no_handshake_is_refused(url: str, caplog: pytest.LogCaptureFixture, method: str) -> None:
    with socket.create_connection(address_of(url), DEADLINE_SECONDS) as other:
        lines = (f"{method} {SOCKET} HTTP/1.1", "Host: 127.0.0.1", "Upgrade: websocket", "Connection: Upgrade", "", "")
        other.sendall("\r\n".join(lines).encode())
        assert other.recv(65_536)[:10] in (b"", b"HTTP/1.1 4")
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


def test_no_page_and_no_file_is_a_socket(stage: ApiStage) -> None:
    for path in ("/", "/static/style.css", "/stores/jobs"):
        with pytest.raises(WebSocketDenialResponse) as denied, client(stage).websocket_connect(f"{OWN}{path}", headers=ALL):
            pass
        assert denied.value.status_code == 404
    assert client(stage).get(SOCKET, headers=ALL).status_code == 404
