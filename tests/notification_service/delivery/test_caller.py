"""Calls to a real HTTP server: what is sent, and what each kind of trouble is told as."""

import asyncio
import gzip
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from threading import Thread
from time import tzset
from typing import Any

import pytest
from harness.receivers import receiver
from harness.waiting import async_wait_until, pause_at_random
from httpcore._backends.auto import AutoBackend

from notification_service.delivery.caller import Caller, CallTally, retry_after_ms
from notification_service.delivery.core.answers import Answer, NoAnswer, Trouble
from notification_service.delivery.core.jobs import Claim, Tries
from notification_service.delivery.settings import Step
from servers.certificates import Certificates
from servers.server import hold_port


class Called(BaseHTTPRequestHandler):
    """Notes each request, and behaves as its path says."""

    requests: list[tuple[str, str, dict[str, str], bytes]]

    def answer(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        received = {name.lower(): value for name, value in self.headers.items()}
        self.requests.append((self.command, self.path, received, self.rfile.read(length)))
        if "hang" in self.path:
            self.connection.recv(1)  # Nothing comes before the caller gives up.
        if "break" in self.path:
            self.connection.close()
            return
        body = b"x" * 5_000_000 if "long" in self.path else b"it is currently suspended"
        self.send_response(302 if "away" in self.path else 503)
        self.send_header("location", "http://127.0.0.1:1/elsewhere")
        self.send_header("retry-after", "7")
        if "packed" in self.path:
            body = gzip.compress(b"x" * 5_000_000)
            self.send_header("content-encoding", "gzip")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            self.close_connection = True

    do_POST = do_PUT = do_GET = answer  # noqa: N815 - The names of the standard library.

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - The name of the standard library.
        pass


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    Called.requests = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Called) as it:
        thread = Thread(target=it.serve_forever, args=(0.02,))
        thread.start()
        yield it
        it.shutdown()
        thread.join()


@pytest.fixture
def call(server: ThreadingHTTPServer) -> Callable[..., Answer | NoAnswer]:
    """Make one call; the keyword arguments are of the claim, the others keys of the receiver."""

    def make(*keys: str, url: str = "", forbidden: str = "", **claim: Any) -> Answer | NoAnswer:
        port = server.server_address[1]
        settings = receiver(*keys, url=url or f"http://127.0.0.1:{port}/base")
        a_claim = Claim(**{**CLAIM, **claim})

        async def run() -> Answer | NoAnswer:
            caller = Caller(settings, [ipaddress.ip_network(forbidden)] if forbidden else [])
            try:
                return await caller.call(a_claim)
            finally:
                await caller.close()

        return asyncio.run(run())

    return make


@pytest.fixture
def time_ends_when_it_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time limit of a call is over when the server has its request and says nothing, however long the sending took."""
    timeout = asyncio.timeout

    async def end(limit: asyncio.Timeout) -> None:
        await async_wait_until(lambda: any("hang" in each[1] for each in Called.requests), "a request that is not answered")
        limit.reschedule(asyncio.get_running_loop().time())

    def limited(_seconds: float) -> asyncio.Timeout:
        limit = timeout(None)
        ending.append(asyncio.get_running_loop().create_task(end(limit)))
        return limit

    ending: list[asyncio.Task[None]] = []
    monkeypatch.setattr(asyncio, "timeout", limited)


CLAIM: dict[str, Any] = {
    "row": 1,
    "epoch": 1,
    "receiver": "r",
    "key": "uow/ä 1",
    "step": Step.DELIVER,
    "tries": Tries(),
    "notification_id": "N1",
    "headers": (
        ("transaction-status", b"ACSC"),
        ("late", b"true"),
        ("event-name", b"E"),
        ("traceparent", b"00-a"),
        ("schedule-requests", b"4"),
    ),
    "value": b'{"a": 1}',
    "job": "j",
}


def test_a_delivery_is_the_value_with_its_id_as_idempotency_key(call: Callable[..., Any]) -> None:
    assert call() == Answer(503, "it is currently suspended", 7_000)
    ((method, path, headers, body),) = Called.requests
    assert (method, path, body) == ("POST", "/base/payments/uow%2F%C3%A4%201/statuses", b'{"a": 1}')
    assert (headers["idempotency-key"], headers["content-type"]) == ("N1", "application/json")
    assert (headers["transaction-status"], headers["late"], headers["traceparent"]) == ("ACSC", "true", "00-a")
    assert headers["schedule-requests"] == "4"
    assert "event-name" not in headers
    assert "authorization" not in headers


@pytest.mark.parametrize(("unit", "segment"), [(".", "%2E"), ("..", "%2E%2E"), ("../..", "..%2F..")])
def test_a_unit_is_one_segment_of_the_path_whatever_it_is_called(call: Callable[..., Any], unit: str, segment: str) -> None:
    call(key=unit)
    call(key=unit, step=Step.ANNOUNCE)
    assert [each[1] for each in Called.requests] == [f"/base/payments/{segment}/statuses", f"/base/payments/{segment}"]


def test_a_header_that_http_cannot_carry_is_left_out_and_adds_no_other(call: Callable[..., Any]) -> None:
    call(
        headers=(
            ("transaction-status", b"ACSC\r\nx-admin: true"),
            ("late", b""),
            ("processing-entity", b" A"),
            ("incomplete", b"a b"),
        )
    )
    headers = Called.requests[0][2]
    assert (headers["incomplete"], headers["late"]) == ("a b", "")
    assert not {"transaction-status", "x-admin", "processing-entity"} & {name.lower() for name in headers}


def test_xml_says_so_and_other_steps_have_no_body(call: Callable[..., Any]) -> None:
    call(value=b"<Document/>")
    call(step=Step.ANNOUNCE)
    call('verify.path = "/known/{unit}/x"', step=Step.VERIFY)
    assert Called.requests[0][2]["content-type"] == "application/xml"
    assert [(each[0], each[1], each[3]) for each in Called.requests[1:]] == [
        ("PUT", "/base/payments/uow%2F%C3%A4%201", b""),
        ("GET", "/base/known/uow%2F%C3%A4%201/x", b""),
    ]


def test_it_says_who_it_is(call: Callable[..., Any]) -> None:
    call('auth { user = me, password = "pä" }')
    call('auth.token = "secret"')
    assert [each[2]["authorization"] for each in Called.requests] == ["Basic bWU6cMOk", "Bearer secret"]


def test_a_redirect_is_an_answer_and_is_not_followed(call: Callable[..., Any]) -> None:
    assert call(key="away").status == 302
    assert len(Called.requests) == 1


def test_calls_are_counted_by_what_they_led_to_with_how_long_they_took(server: ThreadingHTTPServer) -> None:
    """Each answer has its 0 before the first call."""
    tally = CallTally()
    assert set(tally.answers.values()) == {0}
    caller = Caller(receiver(url=f"http://127.0.0.1:{server.server_address[1]}/base"), tally=tally)

    async def run() -> None:
        for key in ("uow-1", "uow-2", "away", "break"):
            await caller.call(Claim(**{**CLAIM, "key": key}))
        await caller.close()

    asyncio.run(run())
    assert {answer: count for answer, count in tally.answers.items() if count} == {"5xx": 2, "3xx": 1, "broken": 1}
    assert tally.durations.report().counts[-1] == 4


def test_of_a_long_body_the_beginning_is_read(call: Callable[..., Any]) -> None:
    assert len(call(key="long").body) == 2_000


@pytest.mark.usefixtures("time_ends_when_it_hangs")
def test_a_time_out_after_sending_is_another_trouble_than_no_connection(call: Callable[..., Any]) -> None:
    late = call("timeout = 100ms", key="hang")
    assert late == NoAnswer(Trouble.BROKEN, "no answer within 0.1 s")
    Called.requests.clear()
    assert call(key="break").trouble is Trouble.BROKEN
    with hold_port() as held:
        assert call(url=f"http://127.0.0.1:{held.getsockname()[1]}").trouble is Trouble.UNREACHABLE
    assert call(url="http://no-such-host.invalid").trouble is Trouble.UNREACHABLE
    assert call(url="https://127.0.0.1:1").trouble is Trouble.UNREACHABLE


@pytest.mark.usefixtures("time_ends_when_it_hangs")
@pytest.mark.parametrize("path", ["troubled", "break", "hang", "away"])
def test_whatever_comes_of_a_call_it_is_one_request_for_the_ledger_alone_retries(
    call: Callable[..., Any], server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    call(key=path)
    monkeypatch.undo()
    call(key="last")
    server.shutdown()
    server.server_close()  # It waits for all that it has begun to answer.
    called = [each[1] for each in Called.requests]
    assert sorted(called) == sorted(f"/base/payments/{key}/statuses" for key in (path, "last"))


def test_a_connection_that_is_refused_is_tried_once(call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    original = AutoBackend.connect_tcp

    async def connect(self: AutoBackend, *a_claim: Any, **more: Any) -> Any:
        tried.append(1)
        return await original(self, *a_claim, **more)

    monkeypatch.setattr(AutoBackend, "connect_tcp", connect)
    with hold_port() as held:
        assert call(url=f"http://127.0.0.1:{held.getsockname()[1]}").trouble is Trouble.UNREACHABLE
    assert tried == [1]


def test_a_server_that_speaks_no_tls_was_sent_nothing(call: Callable[..., Any], server: ThreadingHTTPServer) -> None:
    assert call(url=f"https://127.0.0.1:{server.server_address[1]}").trouble is Trouble.UNREACHABLE
    assert Called.requests == []


def test_a_certificate_that_is_refused_after_the_request_was_sent_breaks_no_call(
    call: Callable[..., Any], tmp_path: Path
) -> None:
    made = Certificates.make(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)
    context.load_verify_locations(made.authority)
    context.verify_mode = ssl.CERT_REQUIRED

    def refuse(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False) as wrapped:
            with suppress(ssl.SSLError):
                wrapped.do_handshake()
            while socket.socket.recv(wrapped, 4_096):  # Closed with what was sent unread, the connection would lose the alert.
                pass

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = Thread(target=refuse, args=(listening,))
        thread.start()
        found = call(f'tls.authority-file = "{made.authority}"', url=f"https://127.0.0.1:{listening.getsockname()[1]}")
        thread.join()
    assert found.trouble is Trouble.UNREACHABLE
    assert "ALERT_CERTIFICATE_REQUIRED" in found.error


def test_the_reason_of_a_broken_connection_is_told(call: Callable[..., Any]) -> None:
    found = call(key="break")
    assert found.trouble is Trouble.BROKEN
    assert len(found.error.partition(": ")[2]) > 5


def test_a_forbidden_address_is_not_called_whatever_name_it_has(call: Callable[..., Any], server: ThreadingHTTPServer) -> None:
    url = f"http://localhost:{server.server_address[1]}"
    for network in ("127.0.0.0/8", "::1/128"):
        found = call(url=url, forbidden=network)
        if found != Answer(503, "it is currently suspended", 7_000):
            assert found.trouble is Trouble.FORBIDDEN
    refused = call(forbidden="127.0.0.0/8")
    assert refused.trouble is Trouble.FORBIDDEN
    assert "delivery.forbidden-addresses" in refused.error
    assert isinstance(call(forbidden="10.0.0.0/8"), Answer)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ("7", 7_000),
        ("soon", None),
        (formatdate(1_000_060, usegmt=True), 60_000),
        (formatdate(999_000, usegmt=True), 0),
        ("007", 7_000),
        ("1" + "0" * 5_000, 10**12),
        ("0" * 5_000 + "7", 7_000),
        ("-1", None),
        ("7.5", None),
        ("７", None),
        ("Sun, ０６ Nov 1994 08:49:37 GMT", None),
        ("", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str | None, expected: int | None) -> None:
    assert retry_after_ms(value, 1_000_000) == expected


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
@pytest.mark.parametrize(
    "date",
    [
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994",
        "Sun, 06 Nov 1994 08:49:37 -0000",
        "Sun, 06 Nov 1994 08:49:37",
        "Sun, 06 Nov 1994 09:49:37 +0100",
    ],
)
def test_a_date_of_http_is_of_utc_wherever_the_service_runs(monkeypatch: pytest.MonkeyPatch, zone: str, date: str) -> None:
    """RFC 9110, 5.6.7, whose example it is, in its three forms; and what is near to them."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", zone)
        tzset()
        assert retry_after_ms(date, 784_111_777 - 60) == 60_000
    tzset()


class Keeping(Called):
    """Keeps connections, and counts them; a call for the unit `slow` takes up to 20 ms."""

    protocol_version = "HTTP/1.1"
    connections = 0

    def setup(self) -> None:
        super().setup()
        type(self).connections += 1

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        if "slow" in self.path:
            pause_at_random(Random(len(self.requests)), 0, 0.02)
        self.requests.append((self.command, self.path, {}, b""))
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")


@pytest.fixture
def keeping(server: ThreadingHTTPServer) -> Callable[[Callable[[Caller], Awaitable[Any]]], Any]:
    """Run a function with a caller of a server that keeps connections."""
    Keeping.connections, server.RequestHandlerClass = 0, Keeping
    server.daemon_threads = True

    async def run(act: Callable[[Caller], Awaitable[Any]]) -> Any:
        caller = Caller(receiver("timeout = 60s", url=f"http://127.0.0.1:{server.server_address[1]}"))
        try:
            return await act(caller)
        finally:
            await caller.close()

    return lambda act: asyncio.run(run(act))


def test_calls_share_as_many_connections_as_run_at_once(keeping: Callable[..., Any]) -> None:
    async def act(caller: Caller) -> None:
        for _ in range(3):
            await asyncio.gather(*(caller.call(Claim(**CLAIM)) for _ in range(4)))
        for _ in range(3):
            await caller.call(Claim(**CLAIM))

    keeping(act)
    assert (len(Called.requests), Keeping.connections) == (15, 4)


def test_calls_that_were_given_up_hold_up_no_later_ones(keeping: Callable[..., Any]) -> None:
    async def give_up(caller: Caller, after: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(caller.call(Claim(**{**CLAIM, "key": "slow"})), after)

    async def act(caller: Caller) -> list[Answer | NoAnswer]:
        for number in range(25):
            await asyncio.gather(*(give_up(caller, (number + each / 4) / 1_000) for each in range(4)))
        return await asyncio.gather(*(caller.call(Claim(**CLAIM)) for _ in range(4)))

    assert keeping(act) == [Answer(200, "{}")] * 4
    assert Keeping.connections > 4


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "[::ffff:127.0.0.1]",
        "[::ffff:0.0.0.0]",
        "[::ffff:0:127.0.0.1]",
        "[::127.0.0.1]",
        "0.0.0.0",
        "[::]",
        "[64:ff9b::7f00:1]",
        "[64:ff9b:1::7f00:1]",
        "[64:ff9b:1:7f00:0:100::]",
        "[64:ff9b:1:7f:0:1::]",
        "[64:ff9b:1:0:7f:0:100:0]",
        "[2001:db8::5efe:127.0.0.1]",
        "[2001:db8::200:5efe:127.0.0.1]",
        "[2002:7f00:1::1]",
    ],
)
def test_no_form_of_a_forbidden_address_is_called(call: Callable[..., Any], server: ThreadingHTTPServer, host: str) -> None:
    reply = call(url=f"http://{host}:{server.server_address[1]}", forbidden="127.0.0.0/8")
    assert reply.trouble is Trouble.FORBIDDEN
    assert Called.requests == []


def test_with_forbidden_addresses_each_permitted_address_is_tried(
    call: Callable[..., Any], server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def resolve(*_: Any, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in ("127.0.0.2", "127.0.0.1")]

    monkeypatch.setattr(asyncio.SelectorEventLoop, "getaddrinfo", resolve)
    assert call(url=f"http://receiver:{server.server_address[1]}/base", forbidden="10.0.0.0/8").status == 503


def test_an_answer_is_not_unpacked(call: Callable[..., Any]) -> None:
    packed = call(key="packed")
    assert Called.requests[0][2]["accept-encoding"] == "identity"
    assert len(packed.body) <= 2_000
    assert "x" * 100 not in packed.body


def test_a_host_that_is_no_host_name_is_told(call: Callable[..., Any]) -> None:
    for forbidden in ("", "10.0.0.0/8"):
        assert call(url=f"http://{'a' * 70}.example", forbidden=forbidden).trouble is Trouble.UNREACHABLE
