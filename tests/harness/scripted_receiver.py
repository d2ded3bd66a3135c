"""A receiver behind HTTP that answers as a test says, and notes each call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from time import monotonic
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import unquote

from harness.waiting import linger


class Call(NamedTuple):
    """`nth` counts the calls with this idempotency key, from 1. `at` is in seconds of a clock that never goes back."""

    key: str
    id: str
    nth: int
    at: float
    status: int


class Reply(NamedTuple):
    status: int
    headers: Mapping[str, str] = MappingProxyType({})
    after_seconds: float = 0


OK = Reply(201)
Answers = Callable[[str, str, int], Reply]
"""Of a key, an idempotency key, and how many calls with it there were: the answer."""


class ScriptedReceiver(ThreadingHTTPServer):
    """`answers` may be replaced at any moment. `bodies` has by idempotency key the media type and the body of the last call."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: Answers = lambda _key, _id, _nth: OK
        self.calls: list[Call] = []
        self.bodies: dict[str, tuple[str | None, bytes]] = {}
        self._counts: dict[str, int] = {}
        self._lock = Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def taken(self) -> list[tuple[str, str]]:
        """Key and id of each call that was answered with 201, in the order of the answers."""
        return [(each.key, each.id) for each in list(self.calls) if each.status == 201]

    def ids(self, key: str) -> list[str]:
        """The ids that were taken of a key, each once, in order."""
        return list(dict.fromkeys(id_ for found, id_ in self.taken if found == key))

    def take(self, key: str, id_: str) -> Reply:
        with self._lock:
            nth = self._counts[id_] = self._counts.get(id_, 0) + 1
        reply = self.answers(key, id_, nth)
        linger(reply.after_seconds)
        with self._lock:
            self.calls.append(Call(key, id_, nth, monotonic(), reply.status))
        return reply


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    server: ScriptedReceiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.bodies[self.headers["idempotency-key"]] = self.headers["content-type"], body
        reply = self.server.take(unquote(self.path.split("/")[2]), self.headers["idempotency-key"])
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - The name of the standard library.
        pass


@contextmanager
def scripted_receiver() -> Iterator[ScriptedReceiver]:
    """Run a receiver that takes everything."""
    with ScriptedReceiver() as server:
        thread = Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
