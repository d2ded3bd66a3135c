"""What a console makes of the answers of its peers, whatever they answer."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread, Timer

import msgspec
import pytest
from harness.console_stage import client_of, make_sources
from harness.service_under_test import BEGINNING, FakeClock
from harness.waiting import DEADLINE_SECONDS, wait_until

from notification_service.console.history import PeerAnswer, PeerFailed, Peers, fetch, service_answer
from notification_service.status.report import PartitionStatus, State, StatusReport
from notification_service.status.service_report import ServedStatus, service_report
from resequencer.clock import instant_text

HOSTILE = "<script>alert(1)</script>\x1b[31m"


def an_answer(**changed: object) -> bytes:
    at = instant_text(BEGINNING)
    report = msgspec.structs.replace(StatusReport(State.READY, None, 1, "x.conf", at, at, worker_process_id=2), **changed)
    return msgspec.json.encode(service_answer(service_report([report], BEGINNING, is_running=True), ServedStatus()))


class Peer:
    """An HTTP server on loopback that answers what the test says."""

    def __init__(self) -> None:
        self.status, self.body = 200, an_answer()
        self.asked: list[tuple[str, str | None]] = []
        self.may_answer = Event()
        self.may_answer.set()
        peer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                peer.asked.append((self.path, self.headers["Authorization"]))
                peer.may_answer.wait(DEADLINE_SECONDS)
                self.send_response(peer.status)
                self.send_header("Location", peer.url)
                self.send_header("Content-Length", str(len(peer.body)))
                self.end_headers()
                self.wfile.write(peer.body)

            def log_message(self, *_: object) -> None:
                """Nothing is logged."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        self.may_answer.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def peer() -> Iterator[Peer]:
    with closing(Peer()) as made:
        yield made


def first(peers: Peers, is_so: Callable[[PeerAnswer], bool]) -> PeerAnswer:
    """Return the first answer of the only peer of which the question is true."""

    def find() -> PeerAnswer | None:
        (found,) = peers.look()
        return found if is_so(found) else None

    answer = wait_until(find, "such an answer")
    assert answer is not None
    return answer


def test_a_peers_workers_are_told_as_of_their_answer(peer: Peer) -> None:
    (seen,) = Peers((f"{peer.url}/",), "secret", FakeClock()).look()
    assert (seen.url, seen.is_answering, seen.state, seen.as_of) == (
        peer.url,
        True,
        "ready",
        instant_text(BEGINNING),
    )
    assert [each.report.worker_process_id for each in seen.workers] == [2]
    assert peer.asked == [("/api/v1/service", "Bearer secret")]


def test_a_peer_is_asked_once_however_often_its_answer_is_looked_at(peer: Peer) -> None:
    peers = Peers((peer.url,), "", FakeClock())
    for _ in range(50):
        peers.look()
    assert peer.asked == [("/api/v1/service", None)]


@pytest.mark.slow
def test_a_peer_that_no_longer_answers_keeps_its_last_answer_with_its_age(peer: Peer) -> None:
    clock = FakeClock()
    peers = Peers((peer.url,), "", clock)
    assert peers.look()[0].is_answering
    clock.advance(60_000)
    peer.status = 503
    seen = first(peers, lambda each: not each.is_answering)
    assert (seen.problem, seen.state, seen.as_of) == ("it answered 503", "ready", instant_text(BEGINNING))


@pytest.mark.slow
def test_a_slow_peer_holds_a_page_up_for_a_moment_and_then_no_more(peer: Peer) -> None:
    peer.may_answer.clear()
    peers = Peers((peer.url,), "", FakeClock())
    (seen,) = peers.look()
    assert (seen.is_answering, seen.problem) == (False, "it was not asked yet")
    peer.may_answer.set()
    assert first(peers, lambda each: each.is_answering).state == "ready"


@pytest.mark.parametrize(
    ("status", "body", "problem"),
    [
        (401, b"log in", "refuses the login"),
        (403, b"no", "may not look"),
        (404, b"", "no console of this version"),
        (302, b"", "it answered 302"),
        (200, b"<html>", "not that of a console"),
        (200, b"\xff", "not that of a console"),
        (200, b"[" * 100_000, "not that of a console"),
        (200, an_answer().replace(b"2026-03-28", b"yesterday"), "not that of a console"),
        (200, b" " * (4 * 1024 * 1024 + 1), "longer than 4,194,304 bytes"),
    ],
)
def test_what_is_no_answer_of_a_console_is_refused(peer: Peer, status: int, body: bytes, problem: str) -> None:
    peer.status, peer.body = status, body
    with pytest.raises(PeerFailed, match=problem):
        fetch(peer.url, "")


@pytest.mark.slow
@pytest.mark.parametrize("sent", [b"HTTP/1.1 200 OK\r\nX-Long: ", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"])
def test_a_peer_that_drips_its_answer_holds_nothing_longer_than_the_limit(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr("notification_service.console.history._TIMEOUT_SECONDS", 0.5)
    has_ended = Event()

    def drip(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with closing(connection), suppress(OSError):
            connection.sendall(sent)
            while not has_ended.wait(0.05):
                connection.sendall(b"x")

    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        dripping = Thread(target=drip, args=(listening,))
        dripping.start()
        watch = Timer(DEADLINE_SECONDS, has_ended.set)
        watch.start()
        try:
            with pytest.raises(PeerFailed, match="does not answer within"):
                fetch(f"http://127.0.0.1:{listening.getsockname()[1]}", "")
            assert not has_ended.is_set(), "the limit ended the exchange, and not the peer"
        finally:
            has_ended.set()
            watch.cancel()
            dripping.join()


def test_a_peer_that_is_not_there_does_not_answer() -> None:
    with pytest.raises(PeerFailed, match="it does not answer"):
        fetch("http://127.0.0.1:1", "")


@pytest.mark.parametrize("path", ["/", "/workers"])
def test_the_pages_show_a_peers_texts_as_text(peer: Peer, tmp_path: Path, path: str) -> None:
    held = PartitionStatus(HOSTILE, 1, 1, 0, None)
    peer.body = an_answer(reason=HOSTILE, last_exit=HOSTILE, partitions=(held,))
    page = client_of(make_sources(tmp_path), peers=(peer.url,)).get(path)
    assert page.status_code == 200
    assert "Other machines" in page.text
    assert "<script>alert" not in page.text
    assert "\x1b" not in page.text
    assert page.text.count("&lt;script&gt;alert(1)") == 3


def test_the_pages_say_that_a_peer_does_not_answer(tmp_path: Path) -> None:
    page = client_of(make_sources(tmp_path), peers=("http://127.0.0.1:1",)).get("/workers").text
    assert "http://127.0.0.1:1 does not report its state: it does not answer" in page
    assert "Nothing of it is known." in page


def test_the_api_tells_of_peers_if_it_is_asked_to(peer: Peer, tmp_path: Path) -> None:
    client = client_of(make_sources(tmp_path), peers=(peer.url,))
    assert client.get("/api/v1/service").json()["peers"] is None
    (seen,) = client.get("/api/v1/service?peers=true").json()["peers"]
    assert (seen["url"], seen["state"], seen["problem"]) == (peer.url, "ready", None)
