"""The receiver behind HTTP/1.1: a thread for each connection, which is kept alive."""

import json
import sys
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from notification_service.simulator.receiver.receiver import Answer, Receiver

_MISSING = Answer(404, b'{"error": "there are GET and PUT /_behaviour, and GET /_counts"}')
_LENGTH_WANTED = Answer(411, b'{"error": "Content-Length is wanted"}')


class ReceiverHttpServer(ThreadingHTTPServer):
    """Serves a receiver on loopback; paths that begin with `/_` are for its user, and count for nothing."""

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, port: int, receiver: Receiver) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.receiver = receiver

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is no error."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # An answer is one packet.
    server: ReceiverHttpServer

    def do_GET(self) -> None:
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not length.isdecimal():
            self.close_connection = True
            self._send(_LENGTH_WANTED)
            return
        body = self.rfile.read(int(length))
        if self.path.startswith("/_"):
            self._send(_controlled(self.server.receiver, self.command, self.path, body))
        else:
            self._call()

    do_PUT = do_POST = do_GET  # noqa: N815 - the names of the base.

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base.
        """Log nothing: a line for each call would cost more than the call."""

    def _call(self) -> None:
        receiver, headers = self.server.receiver, {name.lower(): value for name, value in self.headers.items()}
        try:
            answer = receiver.begin(self.command, self.path, headers)
            if answer.late:
                time.sleep(answer.late)
        finally:
            receiver.end()
        if answer.breaks:
            self.close_connection = True
        else:
            self._send(answer)

    def _send(self, answer: Answer) -> None:
        kind = "application/json" if answer.body.startswith(b"{") else "text/plain"
        headers = (*answer.headers, ("Content-Type", kind), ("Content-Length", len(answer.body)))
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
        head = f"{self.protocol_version} {answer.status} {HTTPStatus(answer.status).phrase}\r\n{lines}\r\n"
        self.wfile.write(head.encode("latin-1") + answer.body)


def _controlled(receiver: Receiver, method: str, path: str, body: bytes) -> Answer:
    match method, path:
        case "GET", "/_counts":
            return _shown(200, receiver.counts())
        case "GET", "/_behaviour":
            return _shown(200, receiver.behaviour())
        case "PUT", "/_behaviour":
            try:
                receiver.change(json.loads(body))
            except ValueError as error:
                return _shown(400, {"error": str(error)})
            return _shown(200, receiver.behaviour())
    return _MISSING


def _shown(status: int, value: object) -> Answer:
    return Answer(status, json.dumps(value, indent=2).encode() + b"\n")
