"""The access layer around the application: limits, who makes a request, the role that each route needs, and the headers that
protect every answer.

After the device cookies of OWASP ("Slow Down Online Guessing Attacks with Device Cookies"): a mark is no login.
"""

import asyncio
import hmac
import ipaddress
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256
from http import HTTPStatus
from threading import Lock
from time import monotonic
from typing import NamedTuple, TypeAlias

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from notification_service.console.access.identity import Authenticator, Identity, NoLogin, Role, find_client
from resequencer.errors import ResequencerError

_VALID_MS = 2 * 3_600_000
_REMEMBERED = 100_000
"""How many used tokens are remembered at most. Each needed a login, and none is valid for longer than two hours."""


class TokenRefused(Exception):
    """The text says why, for the person who sent the form."""


class FormTokens:
    """Makes and takes tokens. They are bound to a user and to this process. May be used from several threads.

    `passed` returns the milliseconds since the machine was started: by a wall clock, which jumps, a form could be sent twice.
    """

    def __init__(self, passed: Callable[[], int]) -> None:
        self._passed = passed
        self._secret = secrets.token_bytes(32)
        self._used: OrderedDict[str, int] = OrderedDict()
        self._lock = Lock()

    def make(self, identity: Identity) -> str:
        """Return a new token for a form of this user, or for one call of the API."""
        content = f"{secrets.token_urlsafe(12)}.{self._passed() + _VALID_MS}"
        return f"{content}.{self._sign(identity, content)}"

    def take(self, identity: Identity, token: str) -> None:
        """Use the token up.

        Raises:
            TokenRefused: It is not this user's, it is too old, or it was used before.
        """
        content, _, signature = token.rpartition(".")
        nonce, _, until = content.partition(".")
        if not hmac.compare_digest(signature.encode(), self._sign(identity, content).encode()):
            raise TokenRefused("the form's token is missing or is not yours; load the page again")
        now = self._passed()
        if int(until) < now:
            raise TokenRefused("the form is more than two hours old; load the page again")
        with self._lock:
            if nonce in self._used:
                raise TokenRefused("this form was sent before; load the page again to see what it did")
            self._used[nonce] = int(until)
            while self._used and (len(self._used) > _REMEMBERED or next(iter(self._used.values())) < now):
                self._used.popitem(last=False)

    def _sign(self, identity: Identity, content: str) -> str:
        return hmac.digest(self._secret, f"{identity.name}\0{content}".encode(), "sha256").hex()


COOKIE = "resequencer-browser"
_VALID_SECONDS = 90 * 86_400


class KnownBrowsers:
    """Makes marks and finds them again. They are bound to a user and to this process; nothing is remembered."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def find(self, connection: HTTPConnection, name: str) -> str | None:
        """Return what identifies this browser of this user; None if the user has not logged in there."""
        mark = connection.cookies.get(COOKIE, "")
        nonce, _, signature = mark.partition(".")
        return nonce if hmac.compare_digest(signature.encode(), self._sign(name, nonce).encode()) else None

    def make(self, name: str, *, is_secure: bool) -> str:
        """Return a `Set-Cookie` for a browser in which this user has logged in."""
        nonce = secrets.token_urlsafe(12)
        safe = "; Secure" if is_secure else ""
        return f"{COOKIE}={nonce}.{self._sign(name, nonce)}; Max-Age={_VALID_SECONDS}; Path=/; HttpOnly; SameSite=Strict{safe}"

    def _sign(self, name: str, nonce: str) -> str:
        return hmac.digest(self._secret, f"{name}\0{nonce}".encode(), "sha256").hex()


_ADDRESSES = 10_000


class RateLimit:
    """A bucket for each address: `burst` at once, then `per_second`. May be used from several threads.

    `passed` returns the milliseconds since the machine was started: a wall clock that is wrong for a moment would lock a user
    out.
    """

    def __init__(self, passed: Callable[[], int], *, per_second: float, burst: int) -> None:
        self._passed = passed
        self._per_second = per_second
        self._burst = burst
        self._lock = Lock()
        self._buckets: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def take(self, address: str) -> bool:
        """Take one. Return whether there was one."""
        with self._lock:
            remaining = self._remaining(address)
            self._keep(address, remaining - 1 if remaining >= 1 else remaining)
            return remaining >= 1

    def has_room(self, address: str) -> bool:
        """Whether `take` would succeed now."""
        with self._lock:
            return self._remaining(address) >= 1

    def _remaining(self, address: str) -> float:
        remaining, at = self._buckets.get(address, (float(self._burst), self._passed()))
        gained = max(0, self._passed() - at) / 1_000 * self._per_second
        return min(float(self._burst), remaining + gained)

    def _keep(self, address: str, remaining: float) -> None:
        self._buckets[address] = (remaining, self._passed())
        self._buckets.move_to_end(address)
        while len(self._buckets) > _ADDRESSES:
            self._buckets.popitem(last=False)


MAX_BODY_BYTES = 1024 * 1024
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
    """The body of a request is longer than `max_bytes`."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"the body of the request is longer than {max_bytes:,} bytes")


class Limits(NamedTuple):
    """`max_body_bytes` is the longest body; a dead letter that is edited must fit."""

    max_body_bytes: int = MAX_BODY_BYTES
    requests_per_second: float = 50
    requests_at_once: int = 300
    wrong_logins_at_once: int = 10
    wrong_logins_per_second: float = 0.2


class AccessLayer:
    """Refuses what may not pass; otherwise leaves the identity in `request.state.identity`, the client in `request.state.client`.

    A web socket is admitted as a request is. No browser keeps a page of another site from opening one, but each names the site:
    it must be this one. A program names none.

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
        if scope["type"] not in ("http", "websocket"):
            return

        mark: str | None = None

        async def send_protected(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
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
        await self._app(scope, self._bounded(receive) if scope["type"] == "http" else receive, send_protected)

    async def _admit(self, scope: Scope) -> str | None:
        """Return the mark for a browser in which this user was not known yet."""
        connection = HTTPConnection(scope)
        client = find_client(connection, self._proxies)
        if not self._requests.take(client.network):
            raise _Refused(HTTPStatus.TOO_MANY_REQUESTS, "too many requests; wait a second", **{"Retry-After": "1"})
        if isinstance(self._authenticator, NoLogin) and not _names_this_machine(connection):
            raise _Refused(HTTPStatus.MISDIRECTED_REQUEST, "without a login only this machine is served, by a loopback name")
        if scope["type"] == "websocket" and not scope["path"].startswith("/api/"):
            raise _Refused(HTTPStatus.NOT_FOUND, "this is no web socket")
        if _is_led_here(connection) or (scope["type"] == "websocket" and _is_foreign(connection)):
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
            if taken > self._limits.max_body_bytes:
                raise BodyTooLarge(self._limits.max_body_bytes)
            return message

        return receive_bounded


def _is_led_here(connection: HTTPConnection) -> bool:
    """Whether a page of another site sends the request in the background. A link that a person follows is a navigation."""
    site, mode = connection.headers.get("sec-fetch-site", ""), connection.headers.get("sec-fetch-mode", "")
    return site in ("cross-site", "same-site") and mode != "navigate"


def _is_foreign(connection: HTTPConnection) -> bool:
    """Whether a page of another site makes the request, as the browser says."""
    origin = connection.headers.get("origin")
    return origin is not None and origin.partition("://")[2] != connection.headers.get("host")


def _names_this_machine(connection: HTTPConnection) -> bool:
    name = connection.headers.get("host", "").rpartition(":")[0] or connection.headers.get("host", "")
    try:
        return name == "localhost" or ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


Endpoint: TypeAlias = Callable[[Request], Response]
TOKEN_FIELD, TOKEN_HEADER = "form-token", "x-form-token"
_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


def route(path: str, endpoint: Endpoint, *, needs: Role = Role.VIEWER, name: str, tokens: FormTokens | None = None) -> Route:
    """Make a route for people with the role `needs`; others get 403. The endpoint runs in a thread.

    With `tokens` it is a POST that changes something. It needs a token, in the form's field `form-token` or in the header
    `x-form-token`, unless no browser adds the login by itself. The endpoint finds a form in `request.state.form`, or a body in
    `request.state.body`.
    """

    async def guarded(request: Request) -> Response:
        identity: Identity = request.state.identity
        _check_role(identity, needs)
        if needs is Role.PAYMENTS and request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise HTTPException(403, "payment data is shown only from a page of this console")
        if tokens is not None:
            await _read(request)
            if identity.sends_by_itself:
                _check(request, identity, tokens)
        return await run_in_threadpool(endpoint, request)

    return Route(path, guarded, methods=["GET" if tokens is None else "POST"], name=name)


def socket_route(path: str, endpoint: Callable[[WebSocket], Awaitable[None]], *, name: str) -> WebSocketRoute:
    """Make a route of a web socket for people with the role `viewer`; others get 403. `endpoint` accepts it, or refuses it by an
    HTTPException."""

    async def guarded(socket: WebSocket) -> None:
        _check_role(socket.state.identity, Role.VIEWER)
        await endpoint(socket)

    return WebSocketRoute(path, guarded, name=name)


def _check_role(identity: Identity, needs: Role) -> None:
    if not identity.may(needs):
        raise HTTPException(403, f"this needs the role {needs.value}, and {identity.name} does not have it")


async def _read(request: Request) -> None:
    request.state.form, request.state.body = {}, b""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() in _FORMS:
        form = await request.form(max_files=0, max_fields=10_000)
        request.state.form = {name: str(value) for name, value in form.multi_items()}
        request.state.fields = [(name, str(value)) for name, value in form.multi_items()]
    else:
        request.state.body = await request.body()


def _check(request: Request, identity: Identity, tokens: FormTokens) -> None:
    if _is_foreign(request) or request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise HTTPException(403, "a request from another site was refused")
    try:
        tokens.take(identity, request.state.form.get(TOKEN_FIELD) or request.headers.get(TOKEN_HEADER, ""))
    except TokenRefused as refused:
        raise HTTPException(403, str(refused)) from refused
