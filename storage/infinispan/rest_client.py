"""The client for Infinispan's REST interface, version 2."""

import logging
import ssl
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from threading import local
from typing import Any, NoReturn, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from resequencer.storage_port import StorageRefused, StorageUnavailable, StorageWithheld
from storage.infinispan.cache import ended
from storage.infinispan.durability import BINARY, CLUSTERED_DEFINITION, LOCAL_DEFINITION, CacheDurability, durability_of
from storage.infinispan.storage import ServerSettings


class Login(httpx.Auth):
    """Uses Basic over TLS, which needs one round trip. Otherwise uses Digest, which hides the password, if the server offers it.

    The first request of a thread that the server refuses tells which mechanisms it offers. Each thread logs in by itself: Digest
    counts the requests, and a server refuses one that another one has overtaken.
    """

    def __init__(self, username: str, password: str) -> None:
        self._username = username
        self._password = password
        self._chosen = local()

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        auth: httpx.Auth | None = getattr(self._chosen, "auth", None)
        if auth is None:
            response = yield request
            if response.status_code != httpx.codes.UNAUTHORIZED:
                return
            auth = self._chosen.auth = self._choose(response, is_hidden=request.url.scheme == "https")
        yield from auth.auth_flow(request)

    def _choose(self, response: httpx.Response, *, is_hidden: bool) -> httpx.Auth:
        offered = {each.partition(" ")[0].lower() for each in response.headers.get_list("www-authenticate")}
        is_basic = "digest" not in offered or (is_hidden and "basic" in offered)
        return (httpx.BasicAuth if is_basic else httpx.DigestAuth)(self._username, self._password)


_REFUSALS: dict[int, str] = {
    httpx.codes.UNAUTHORIZED: "it refuses the login; set storage.infinispan.username and password to a user that it knows",
    httpx.codes.FORBIDDEN: "the user may not do this; give it the role application (deployer, to let it make the cache)",
    httpx.codes.REQUEST_ENTITY_TOO_LARGE: "it accepts no bodies of this size; allow 10 MB at its REST endpoint "
    "(max-content-length) and at any proxy before it",
    httpx.codes.NOT_FOUND: "it is not a REST endpoint of Infinispan, version 2; set storage.infinispan.url to one",
    httpx.codes.METHOD_NOT_ALLOWED: "it is not a REST endpoint of Infinispan, version 2; set storage.infinispan.url to one",
}

_WITHHELD = (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN)


@contextmanager
def translated(server: str, request: str) -> Iterator[None]:
    """Send a request to `server`, and translate its errors. `request` describes the request.

    Raises:
        StorageUnavailable: The server did not answer in time.
        StorageRefused: The server's certificate is not trusted.
    """
    try:
        yield
    except httpx.TransportError as error:
        if _is_untrusted(error):
            problem = f"its certificate is not trusted ({error}); set storage.infinispan.tls.ca-file to its authority"
            raise StorageRefused(server, problem) from error
        raise StorageUnavailable(f"{server}: {request}: {str(error) or type(error).__name__}") from error
    except httpx.HTTPError as error:
        raise StorageUnavailable(f"{server}: {request}: {str(error) or type(error).__name__}") from error


def refuse(server: str, response: httpx.Response) -> NoReturn:
    """Raise the error for an unexpected answer."""
    answer = f"{response.status_code} {_first_line(response)}".strip()
    request = f"{response.request.method} {response.request.url.path}"
    if (problem := _REFUSALS.get(response.status_code)) is not None:
        kind = StorageWithheld if response.status_code in _WITHHELD else StorageRefused
        raise kind(server, f"{problem} ({request}: {answer})")
    if response.is_server_error or response.status_code in (httpx.codes.REQUEST_TIMEOUT, httpx.codes.TOO_MANY_REQUESTS):
        raise StorageUnavailable(f"{server}: {request}: {answer}")
    raise StorageRefused(server, f"it answers {answer} to {request}; check the url, and see the server's log for the reason")


def _is_untrusted(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _first_line(response: httpx.Response) -> str:
    return response.text.partition("\n")[0][:200]


_log = logging.getLogger("resequencer.storage")

_AT_ONCE = 8
_CREATED = {200, 201, 204, 304}
_COUNTER = {"strong-counter": {"initial-value": 0, "storage": "PERSISTENT"}}
_NO_CLUSTER = "ISPN000343"
_EXISTS_ALREADY = "ISPN000507"

_Answer = TypeVar("_Answer")


class InfinispanRest:
    """One cache of one server, or of a cluster behind one address. Connects on first use. After that it may be used from several
    threads.

    `durability` is the known durability of the cache, None before `set_up`.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._server = settings.url.rstrip("/")
        self._root = f"{self._server}/rest/v2"
        self._values = f"{self._root}/caches/{_escaped(settings.cache)}"
        self._client: httpx.Client | None = None
        self._threads = _new_threads()
        self.durability: CacheDurability | None = None

    @property
    def may_lag(self) -> bool:
        return self.durability is not None and self.durability.is_asynchronous

    def get(self, key: str) -> bytes | None:
        response = self._ask("GET", f"{self._values}/{_escaped(key)}", {200, 404})
        return response.content if response.status_code == httpx.codes.OK else None

    def put(self, key: str, body: bytes) -> None:
        url = f"{self._values}/{_escaped(key)}"
        if self._ask("PUT", url, {200, 201, 204, 404}, body).status_code == httpx.codes.NOT_FOUND:
            # The cache was removed. Its values will be reported as missing.
            self.set_up()
            self._ask("PUT", url, {200, 201, 204}, body)

    def delete(self, key: str) -> None:
        self._ask("DELETE", f"{self._values}/{_escaped(key)}", {200, 204, 404})

    def begin(self, requests: Sequence[Callable[[], object]]) -> Callable[[], None]:
        return partial(_end, [self._threads.submit(each) for each in requests])

    def find_counter(self, name: str) -> int | None:
        response = self._ask("GET", self._counter(name), {200, 404})
        return self._number(response) if response.status_code == httpx.codes.OK else None

    def create_counter(self, name: str) -> None:
        try:
            self._ask("POST", self._counter(name), _CREATED, _COUNTER)
        except StorageUnavailable:
            # If two counters are created at one instant, the server may answer one with 500. It may exist all the same.
            if self.find_counter(name) is None:
                self._ask("POST", self._counter(name), _CREATED, _COUNTER)

    def compare_and_set(self, name: str, expected: int, update: int) -> bool:
        url = f"{self._counter(name)}?action=compareAndSet&expect={expected}&update={update}"
        response = self._ask("POST", url, {200, 404})
        return response.status_code == httpx.codes.OK and response.text.strip() == "true"

    def set_up(self) -> None:
        """Check that the cache keeps its data; create a missing cache. Log its durability when it changes.

        Raises:
            StorageRefused: The cache expires, evicts or changes its entries.
        """
        durability = self.look()
        if durability is None:
            self._create()
            durability = self.look()
        if durability is not None and durability != self.durability:
            _log.info("cache %s: %s", self._settings.cache, durability)
            for each in durability.shortcomings():
                _log.warning("cache %s: %s", self._settings.cache, each)
        self.durability = durability

    def look(self) -> CacheDurability | None:
        """Return the durability of the cache, None if the cache does not exist. Changes nothing.

        Raises: as `set_up`.
        """
        response = self._ask("GET", self._values, {200, 404})
        if response.status_code == httpx.codes.NOT_FOUND:
            return None
        durability = durability_of(self._read(response, dict[str, Any]))
        if durability.objections:
            raise StorageRefused(f"{self._server}: cache {self._settings.cache}", "; ".join(durability.objections))
        return durability

    def preflight(self) -> list[str]:
        """Return what an operator should know before the service is started, in sentences. Changes nothing.

        Raises:
            StorageUnavailable, StorageRefused: As in the running service.
        """
        name, durability = f"cache {self._settings.cache}", self.look()
        self.find_counter("is-there-none")
        if durability is None:
            return [f"{name}: it does not exist and will be created; for that the user needs the role deployer or admin"]
        self.get("is-there-none")
        return [f"{name}: {each}" for each in (durability, *durability.shortcomings())]

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
        self._threads = _new_threads()
        if self._client is not None:
            self._client.close()
            self._client = None

    def _create(self) -> None:
        """Create the cache on disk, with two owners per entry if there is a cluster."""
        for definition in (CLUSTERED_DEFINITION, LOCAL_DEFINITION):
            response = self._ask("POST", self._values, {200, 201, 400}, definition)
            if response.status_code != httpx.codes.BAD_REQUEST or _EXISTS_ALREADY in response.text:
                _log.info("created cache %s", self._settings.cache)
                return
            if _NO_CLUSTER not in response.text:
                break
        refuse(self._server, response)

    def _ask(
        self, method: str, url: str, expected: Collection[int], body: bytes | Mapping[str, Any] | None = None
    ) -> httpx.Response:
        headers, content = None, None
        if body is not None:
            is_bytes = isinstance(body, bytes)
            headers = {"Content-Type": BINARY if is_bytes else "application/json"}
            content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        with translated(self._server, f"{method} {url.removeprefix(self._server)}"):
            response = self._connected().request(method, url, content=content, headers=headers)
        # The stream was read. It is part of a reference cycle that would keep the bodies until the collector runs, which is rare.
        del response.stream
        if response.status_code not in expected:
            refuse(self._server, response)
        return response

    def _connected(self) -> httpx.Client:
        if self._client is None:
            settings = self._settings
            self._client = httpx.Client(
                auth=Login(settings.username, settings.password) if settings.username else None,
                # Compression costs the server a millisecond per answer.
                headers={"Accept-Encoding": "identity"},
                timeout=settings.timeout_ms / 1_000,
                verify=self._trust(),
                # The environment's proxy settings are not meant for this connection.
                trust_env=False,
            )
        return self._client

    def _trust(self) -> ssl.SSLContext:
        if not self._server.startswith("https:"):
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # Without authorities, because loading them takes 20 ms.
        try:
            return ssl.create_default_context(cafile=self._settings.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise StorageRefused(
                str(self._settings.ca_file), f"holds no certificates ({error}); name a PEM file that does"
            ) from error

    def _counter(self, name: str) -> str:
        return f"{self._root}/counters/{_escaped(self._settings.cache)}:{_escaped(name)}"

    def _number(self, response: httpx.Response) -> int:
        try:
            return int(response.text)
        except ValueError:
            refuse(self._server, response)

    def _read(self, response: httpx.Response, kind: type[_Answer]) -> _Answer:
        try:
            return msgspec.json.decode(response.content, type=kind)
        except msgspec.DecodeError:
            refuse(self._server, response)


def _new_threads() -> ThreadPoolExecutor:
    """A thread begins with the first request for it."""
    return ThreadPoolExecutor(_AT_ONCE, "infinispan-requests")


def _end(begun: Sequence[Future[object]]) -> None:
    for each in ended(begun):
        if not each.cancelled():
            each.result()
    if any(each.cancelled() for each in begun):
        raise StorageUnavailable("the connections were closed before all was asked")


def _escaped(name: str) -> str:
    return quote(name, safe=":~")
