"""A receiver of notifications by Starlette and uvicorn that shares no code with the service, and insists on idempotency keys.

It follows draft-ietf-httpapi-idempotency-key-header: 400 answers a call whose Idempotency-Key is missing or malformed, 422 a key
that came with another request before, and a repeated request gets the answer that the first one got. The draft has the key in
quotes; most receivers also take it without, and so does this one. Each call is a line of the journal, written before its answer.

`python foreign_receiver.py SOCKET JOURNAL BREAKS SEED` listens on the inherited socket with that number. It breaks the connection
of a share of the calls after it has taken them.
"""

import asyncio
import json
import random
import re
import socket
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

_KEY = re.compile(r'"[\x20\x21\x23-\x5b\x5d-\x7e]{1,255}"|[A-Za-z0-9._:-]{1,255}')
_LONGEST_SECONDS = 0.04


class ForeignReceiver:
    """Takes `POST /payments/{unit}/statuses`. `breaks` is a share from 0 to 1."""

    def __init__(self, journal: Path, breaks: float, seed: int) -> None:
        self._journal = journal.open("a", buffering=1)
        self._breaks, self._chance = breaks, random.Random(seed)
        self._answers: dict[str, tuple[bytes, int, dict[str, Any]]] = {}
        """Of each key: a hash of its request, and the status and body of its answer."""

    def application(self) -> Starlette:
        return Starlette(routes=[Route("/payments/{unit}/statuses", self.take, methods=["POST"])])

    async def take(self, request: Request) -> Response:
        body = await request.body()
        await asyncio.sleep(self._chance.uniform(0, _LONGEST_SECONDS))
        key = request.headers.get("idempotency-key", "")
        became, status, answer = self._answer(key, request.url.path, body)
        line = {"is": became, "unit": request.path_params["unit"], "key": key, "body": body.decode()}
        self._journal.write(json.dumps(line) + "\n")
        if self._chance.random() < self._breaks:
            request.state.transport.abort()
        return JSONResponse(answer, status)

    def _answer(self, key: str, path: str, body: bytes) -> tuple[str, int, dict[str, Any]]:
        if not _KEY.fullmatch(key):
            return "malformed", 400, {"title": "Idempotency-Key is missing or malformed"}
        request = sha256(path.encode() + b"\n" + body).digest()
        if key not in self._answers:
            self._answers[key] = (request, 201, {"number": len(self._answers) + 1})
            return "taken", *self._answers[key][1:]
        known, status, answer = self._answers[key]
        if known != request:
            return "reused", 422, {"title": "Idempotency-Key is already used"}
        return "repeated", status, answer


class _Protocol(H11Protocol):
    """Gives requests the transport of their connection, so that one can be broken."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.app_state = {**self.app_state, "transport": transport}
        super().connection_made(transport)


def main() -> None:
    listening, journal, breaks, seed = sys.argv[1:]
    receiver = ForeignReceiver(Path(journal), float(breaks), int(seed))
    settings = {"http": _Protocol, "lifespan": "off", "log_level": "warning", "access_log": False}
    server = uvicorn.Server(uvicorn.Config(receiver.application(), **settings))
    server.run(sockets=[socket.socket(fileno=int(listening))])


if __name__ == "__main__":
    main()
