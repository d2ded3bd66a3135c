"""The access layer around the application: limits, who makes a request, and the headers that protect every answer."""

import asyncio
import ipaddress
from collections.abc import Callable, Sequence
from hashlib import sha256
from http import HTTPStatus
from time import monotonic
from typing import NamedTuple

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from notification_service.console.access.client import find_client
from notification_service.console.access.identity import Authenticator, NoLogin
from notification_service.console.access.known_browsers import KnownBrowsers
from notification_service.console.access.request_limits import RateLimit
from resequencer.errors import ResequencerError

MOST_BODY_BYTES = 1024 * 1024
_BODY_SECONDS = 30
"""How long a client may take to send the body of a request."""

_PROTECTION = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class _Refused(Exception):
    def __init__(self, status: HTTPStatus, text: str, **headers: str) -> None:
        super().__init__(text)
        self._status, self._text, self._headers = status, text, headers

    def answer(self, path: str) -> Response:
        if path.startswith("/api/"):
            return JSONResponse({"error": self._text}, self._status, self._headers)
        return PlainTextResponse(f"{self._text}\n", self._status, self._headers)


class BodyTooLarge(Exception):
    """The body of a request is longer than `most` bytes."""

    def __init__(self, most: int) -> None:
        super().__init__(f"the body of the request is longer than {most:,} bytes")


class Limits(NamedTuple):
    """`most_body_bytes` is the longest body; a dead letter that is edited must fit."""

    most_body_bytes: int = MOST_BODY_BYTES
    requests_per_second: float = 50
    requests_at_once: int = 300
    wrong_logins_at_once: int = 10
    wrong_logins_per_second: float = 0.2


class AccessLayer:
    """Refuses what may not pass; otherwise leaves the identity in `request.state.identity`, the client in `request.state.client`.

    `proxies` are the networks whose `X-Forwarded-For` is believed. Wrong logins are counted by user and client; in a browser
    where the user has logged in before they are counted apart, so that no other person can lock the user out there.
    `passed` returns the milliseconds since the machine was started.

    Without a login a browser could be led here under a foreign name (DNS rebinding). Then only names of this machine are served.
    """

    def __init__(
        self, app: ASGIApp, authenticator: Authenticator, passed: Callable[[], int], limits: Limits, proxies: Sequence[str] = ()
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        self._limits = limits
        self._proxies = [ipaddress.ip_network(each) for each in proxies]
        self._browsers = KnownBrowsers()
        self._requests = RateLimit(passed, per_second=limits.requests_per_second, burst=limits.requests_at_once)
        self._wrong_logins = RateLimit(passed, per_second=limits.wrong_logins_per_second, burst=limits.wrong_logins_at_once)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        mark: str | None = None

        async def send_protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _PROTECTION.items():
                    headers[name] = value
                if not scope["path"].startswith("/static/"):
                    headers["Cache-Control"] = "no-store"
                if mark is not None:
                    headers.append("Set-Cookie", mark)
            await send(message)

        try:
            mark = await self._admit(scope)
        except _Refused as refused:
            await refused.answer(scope["path"])(scope, receive, send_protected)
            return
        await self._app(scope, self._bounded(receive), send_protected)

    async def _admit(self, scope: Scope) -> str | None:
        """Return the mark for a browser in which this user was not known yet."""
        connection = HTTPConnection(scope)
        client = find_client(connection, self._proxies)
        if not self._requests.take(client.network):
            raise _Refused(HTTPStatus.TOO_MANY_REQUESTS, "too many requests; wait a second", **{"Retry-After": "1"})
        if isinstance(self._authenticator, NoLogin) and not _names_this_machine(connection):
            raise _Refused(HTTPStatus.MISDIRECTED_REQUEST, "without a login only this machine is served, by a loopback name")
        if _is_led_here(connection):
            raise _Refused(HTTPStatus.FORBIDDEN, "a request that another site made the browser send was refused")
        name = self._authenticator.find_claimed_name(connection)
        browser = None if name is None else self._browsers.find(connection, name)
        guesser = "" if name is None else f"{browser or client.network} {sha256(name.encode()).hexdigest()}"
        if name is not None and not self._wrong_logins.has_room(guesser):
            raise _Refused(HTTPStatus.TOO_MANY_REQUESTS, "too many wrong logins; wait a minute", **{"Retry-After": "60"})
        scope.setdefault("state", {}).update(client=client)
        try:
            identity = await self._authenticator.find_identity(connection)
        except ResequencerError as error:
            text = f"the login cannot be checked: {error}"
            raise _Refused(HTTPStatus.SERVICE_UNAVAILABLE, text, **{"Retry-After": "1"}) from error
        if identity is None:
            if name is not None:
                self._wrong_logins.take(guesser)
            challenge = self._authenticator.challenge
            raise _Refused(HTTPStatus.UNAUTHORIZED, "log in", **({"WWW-Authenticate": challenge} if challenge else {}))
        scope["state"]["identity"] = identity
        return None if name is None or browser else self._browsers.make(name, is_secure=scope["scheme"] == "https")

    def _bounded(self, receive: Receive) -> Receive:
        taken, is_whole = 0, False
        until = monotonic() + _BODY_SECONDS

        async def receive_bounded() -> Message:
            nonlocal taken, is_whole
            if is_whole:
                return await receive()  # Waits for the end of the connection.
            message = await asyncio.wait_for(receive(), max(0.0, until - monotonic()))
            taken += len(message.get("body", b""))
            is_whole = not message.get("more_body", False)
            if taken > self._limits.most_body_bytes:
                raise BodyTooLarge(self._limits.most_body_bytes)
            return message

        return receive_bounded


def _is_led_here(connection: HTTPConnection) -> bool:
    """Whether a page of another site sends the request in the background. A link that a person follows is a navigation."""
    site, mode = connection.headers.get("sec-fetch-site", ""), connection.headers.get("sec-fetch-mode", "")
    return site in ("cross-site", "same-site") and mode != "navigate"


def _names_this_machine(connection: HTTPConnection) -> bool:
    name = connection.headers.get("host", "").rpartition(":")[0] or connection.headers.get("host", "")
    try:
        return name == "localhost" or ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False
