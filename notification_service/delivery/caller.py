"""One HTTP call to a receiver: what is sent, and what came back."""

import asyncio
import ipaddress
import re
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC
from email.utils import parsedate_to_datetime
from time import monotonic, time
from typing import Any, Protocol
from urllib.parse import quote

import httpcore
import httpx

from guardian import headers as names
from guardian.metrics import STEP_BOUNDS, Histogram
from notification_service.delivery.core.answers import Answer, NoAnswer, Trouble
from notification_service.delivery.settings import Receiver, Step
from resequencer.record import Headers

_BODY_BYTES = 2_000
_PASSED_ON = (names.TRACEPARENT, names.TRACESTATE)
_MARKS = (
    names.TRANSACTION_STATUS,
    names.PROCESSING_ENTITY,
    names.INCOMPLETE,
    names.LATE,
    names.POSSIBLE_DUPLICATE,
    names.NOTIFICATION_ID,
    names.SCHEDULE_REQUESTS,
)

_CONTENT_TYPES = ("content-type", "contenttype")
"""As CloudEvents' binding for Kafka calls it, and Spring Cloud Stream; in lower case."""

_FIELD_VALUE = re.compile(rb"(?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?")
"""RFC 9110, 5.5."""

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_WITH_IPV4 = tuple(map(ipaddress.IPv6Network, ("64:ff9b::/96", "::ffff:0:0:0/96", "::/96")))
"""RFC 6052, RFC 7915, and RFC 4291, 2.5.5.1: their last four bytes are an IPv4 address."""
_LOCAL_NAT64 = ipaddress.IPv6Network("64:ff9b:1::/48")
"""RFC 8215: it contains prefixes of any length, behind which an IPv4 address stands as RFC 6052, 2.2, says."""
_ISATAP = (b"\0\0\x5e\xfe", b"\2\0\x5e\xfe")
"""RFC 5214, 6.1: an IPv4 address follows, whatever the network."""

_SECONDS = re.compile("[0-9]+")
_MAX_SECONDS = 10**9


class Call(Protocol):
    """What is sent: a claim of the ledger, or a record of a topic. `key` stands for `{unit}` in a path."""

    @property
    def step(self) -> Step: ...

    @property
    def key(self) -> str: ...

    @property
    def notification_id(self) -> str: ...

    @property
    def headers(self) -> Headers: ...

    @property
    def value(self) -> bytes: ...


ANSWERS = ("1xx", "2xx", "3xx", "4xx", "5xx", *(each.value for each in Trouble))
"""What a call may lead to, as it is counted: the class of the status, or why there is no answer."""


class CallTally:
    """Counts the calls to a receiver since the start of this process: how long each took, and what was answered."""

    def __init__(self) -> None:
        self.durations = Histogram(STEP_BOUNDS)
        self.answers = Counter(dict.fromkeys(ANSWERS, 0))

    def note(self, answer: Answer | NoAnswer, took_ms: int) -> None:
        self.durations.observe(took_ms)
        self.answers[f"{answer.status // 100}xx" if isinstance(answer, Answer) else answer.trouble.value] += 1


class Caller:
    """Makes calls to one receiver, over connections that are kept, and counts them in `tally`. `close` ends them.

    A redirect is an answer like others and is not followed. `forbidden` are networks that no call may reach, whatever the
    receiver's name resolves to.
    """

    def __init__(self, receiver: Receiver, forbidden: Sequence[Network] = (), tally: CallTally | None = None) -> None:
        self._receiver, self._forbidden, self._tls = receiver, forbidden, _tls_context(receiver)
        self._tally = tally or CallTally()
        # One client for each connection: a pool looks at all of its connections at each call, which takes as long as the call.
        self._clients: set[httpx.AsyncClient] = set()
        self._idle: list[httpx.AsyncClient] = []

    async def call(self, call: Call) -> Answer | NoAnswer:
        """Make the call of the step. Never raises; it takes as long as the receiver's time limit at most."""
        began = monotonic()
        answer = await self._answer_to(call)
        self._tally.note(answer, round((monotonic() - began) * 1_000))
        return answer

    async def _answer_to(self, call: Call) -> Answer | NoAnswer:
        sent = _Sent()
        try:
            async with self._connection() as client, asyncio.timeout(self._receiver.timeout_ms / 1_000):
                return await self._call(client, call, sent)
        except TimeoutError:
            return NoAnswer(_trouble(sent), f"no answer within {self._receiver.timeout_ms / 1_000:g} s")
        except _Forbidden as error:
            return NoAnswer(Trouble.FORBIDDEN, str(error))
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:  # ValueError: a host that is no host name.
            return _no_answer(error, sent)

    async def close(self) -> None:
        for client in list(self._clients):
            await client.aclose()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[httpx.AsyncClient]:
        """Lend a client that no other call uses. After a call without an answer it is closed, and not lent again.

        httpcore forgets to end a connection that was given up in the wrong moment, and waits for it for ever (its issue 1093).
        """
        client = self._idle.pop() if self._idle else self._new_client()
        try:
            yield client
        except BaseException:
            self._clients.remove(client)
            await client.aclose()
            raise
        self._idle.append(client)

    def _new_client(self) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=1, max_keepalive_connections=1)
        transport = httpx.AsyncHTTPTransport(verify=self._tls, limits=limits, retries=0, trust_env=False)
        if self._forbidden:
            # Where a name becomes an address: one that resolves to another address a moment later is no way round.
            transport._pool._network_backend = _GuardedBackend(self._forbidden)  # noqa: SLF001 - httpx has no way to pass it.
        client = httpx.AsyncClient(
            base_url=str(self._receiver.url),
            transport=transport,
            auth=_login(self._receiver),
            timeout=None,  # noqa: S113 - The whole call has a limit, above.
            headers={"accept-encoding": "identity"},
            follow_redirects=False,
            trust_env=False,
        )
        self._clients.add(client)
        return client

    async def _call(self, client: httpx.AsyncClient, call: Call, sent: "_Sent") -> Answer:
        method, path = _request_of(self._receiver, call.step)
        is_delivery = call.step is Step.DELIVER
        request = client.build_request(
            method,
            path.replace("{unit}", _segment(call.key)),
            content=call.value if is_delivery else None,
            headers=_headers(call, is_delivery=is_delivery),
            extensions={"trace": sent.trace},
        )
        response = await client.send(request, stream=True)
        try:
            body = b""
            # As it came: a few compressed bytes could become gigabytes.
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) >= _BODY_BYTES:
                    break
        finally:
            await response.aclose()
        text = body[:_BODY_BYTES].decode(errors="replace")
        return Answer(response.status_code, text, retry_after_ms(response.headers.get("retry-after"), time()))


def retry_after_ms(value: str | None, now: float) -> int | None:
    """Return how long a header Retry-After asks to wait: seconds, or an HTTP date (RFC 9110, 10.2.3). None: absent or invalid.

    A date without a zone is of UTC (RFC 9110, 5.6.7). More than 30 years are 30 years.
    """
    if value is None or not value.isascii():  # The digits of other scripts are numbers to Python.
        return None
    if _SECONDS.fullmatch(value):
        digits = value.lstrip("0")
        return _MAX_SECONDS * 1_000 if len(digits) >= len(str(_MAX_SECONDS)) else int(digits or "0") * 1_000
    try:
        date = parsedate_to_datetime(value)
        asked = (date if date.tzinfo is not None else date.replace(tzinfo=UTC)).timestamp() - now
    except (ValueError, OverflowError):
        return None
    return max(0, round(min(asked, _MAX_SECONDS) * 1_000))


class _Sent:
    """Notes whether a request began to leave: from then on the receiver may have taken it."""

    def __init__(self) -> None:
        self.has_begun = False

    async def trace(self, name: str, _info: Mapping[str, Any]) -> None:
        if name.endswith("send_request_headers.started"):
            self.has_begun = True


class _Forbidden(Exception):
    pass


class _GuardedBackend(httpcore.AsyncNetworkBackend):
    """Connects to addresses outside of the forbidden networks only."""

    def __init__(self, forbidden: Sequence[Network]) -> None:
        self._inner = httpcore.AnyIOBackend()
        self._forbidden = forbidden

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            raise httpcore.ConnectError(str(error)) from error
        addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
        for address in addresses:
            if any(each in network for each in _meant_by(address) for network in self._forbidden):
                raise _Forbidden(f"{host} resolves to {address}, which is in a network of delivery.forbidden-addresses")
        for address in addresses[:-1]:
            with suppress(httpcore.ConnectError, httpcore.ConnectTimeout):
                return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
        return await self._inner.connect_tcp(addresses[-1], port, timeout, local_address, socket_options)


def _meant_by(address: str) -> list[_Address]:
    """Return the address, and those that are reached by it: IPv6 has forms that contain an IPv4 address."""
    found = ipaddress.ip_address(address)
    if found.is_unspecified:  # It connects to this machine.
        return [found, ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1")]
    if isinstance(found, ipaddress.IPv4Address):
        return [found]
    inner = [found.ipv4_mapped, found.sixtofour, *(found.teredo or ())]
    last = found.packed[12:]
    if any(found in network for network in _WITH_IPV4) or found.packed[8:12] in _ISATAP:
        inner.append(ipaddress.IPv4Address(last))
    if found in _LOCAL_NAT64:
        # Which of the forms it has is not known. In one of a short prefix the last bytes are zero.
        inner += [ipaddress.IPv4Address(each) for each in (last, *_behind_a_prefix(found.packed)) if any(each)]
    return [found, *(meant for each in inner if each is not None for meant in _meant_by(str(each)))]


def _behind_a_prefix(address: bytes) -> list[bytes]:
    """Return the IPv4 addresses behind a prefix of 48, 56 or 64 bits: byte 8 and what follows them is zero (RFC 6052, 2.2)."""
    forms = ((address[6:8] + address[9:11], 11), (address[7:8] + address[9:12], 12), (address[9:13], 13))
    return [inner for inner, end in forms if not address[8] and not any(address[end:])]


def _no_answer(error: BaseException, sent: _Sent) -> NoAnswer:
    """Return what an error of the connection means. It can be wrapped more than once, and the outermost one may say nothing."""
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None:
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    for each in chain:
        if isinstance(each, _Forbidden):
            return NoAnswer(Trouble.FORBIDDEN, str(each))
        # With TLS 1.3 a certificate is refused by an alert after the request was sent; the receiver has not read it then.
        if isinstance(each, ssl.SSLError) and "_ALERT_" in str(each):
            return NoAnswer(Trouble.UNREACHABLE, f"{type(each).__name__}: {each}")
    cause = next((each for each in chain if str(each)), chain[-1])
    return NoAnswer(_trouble(sent), f"{type(error).__name__}: {cause if cause is error else repr(cause)}")


def _trouble(sent: _Sent) -> Trouble:
    return Trouble.BROKEN if sent.has_begun else Trouble.UNREACHABLE


def _tls_context(receiver: Receiver) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=receiver.tls.authority)
    if receiver.tls.certificate is not None:
        context.load_cert_chain(receiver.tls.certificate, receiver.tls.key)
    return context


def _login(receiver: Receiver) -> httpx.Auth | None:
    login = receiver.login
    if login.user:
        return httpx.BasicAuth(login.user, str(login.password))
    return _Bearer(str(login.token)) if login.token else None


class _Bearer(httpx.Auth):
    def __init__(self, token: str) -> None:
        self._header = f"Bearer {token}"

    def auth_flow(self, request: httpx.Request) -> Any:
        request.headers["Authorization"] = self._header
        yield request


def _request_of(receiver: Receiver, step: Step) -> tuple[str, str]:
    if step is Step.ANNOUNCE:
        return receiver.announce.method, receiver.announce.path
    if step is Step.VERIFY:
        return receiver.verify.method, receiver.verify.path
    return receiver.deliver.method, receiver.deliver.path


def _segment(unit: str) -> str:
    """Return the unit as one segment of a path. `.` and `..` would be taken for steps on the path (RFC 3986, 5.2.4)."""
    return quote(unit, safe="") if unit not in (".", "..") else unit.replace(".", "%2E")


def _headers(call: Call, *, is_delivery: bool) -> list[tuple[bytes, bytes]]:
    found = _sendable(call.headers, _PASSED_ON)
    if not is_delivery:
        return found
    ours = names.find_ours(call.headers)
    kind = _kind_of(call.value) if ours is None else _own_kind_of(call)
    found += [(b"content-type", kind), (b"idempotency-key", call.notification_id.encode())]
    return found + _sendable(call.headers if ours is None else ours, _MARKS)


def _kind_of(value: bytes) -> bytes:
    return b"application/xml" if value.lstrip()[:1] == b"<" else b"application/json"


def _own_kind_of(call: Call) -> bytes:
    """Return the media type that a record that passed through names itself; its value may be anything."""
    own = [value for name, value in call.headers if name.lower() in _CONTENT_TYPES]
    return own[-1] if own and own[-1] and _FIELD_VALUE.fullmatch(own[-1]) else b"application/octet-stream"


def _sendable(headers: Headers, wanted: Sequence[str]) -> list[tuple[bytes, bytes]]:
    """Return the wanted headers, but none with a value that HTTP cannot carry: other programs may have written it."""
    return [(name.encode(), value) for name, value in headers if name in wanted and _FIELD_VALUE.fullmatch(value)]
