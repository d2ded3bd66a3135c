"""The service as the API shows it, and the consoles of the group's other machines: asked in the background, and never trusted."""

import asyncio
import logging
from collections.abc import Sequence
from threading import Event, Lock, Thread
from time import monotonic

import httpx
import msgspec

from notification_service.status.report import StatusReport
from notification_service.status.service_report import NOT_RUNNING, ServedStatus, ServiceReport
from resequencer.clock import Clock, instant_of, instant_text
from resequencer.printable import printable


class WorkerAnswer(msgspec.Struct, frozen=True):
    """A worker's present state, such as `ready` or `stale`, and its last report."""

    state: str
    report: StatusReport


class PeerAnswer(msgspec.Struct, frozen=True):
    """What the console of another machine answered last: its service's state and workers, and when (`as_of`, null: never).

    If it is not answering, `problem` says why.
    """

    url: str
    is_answering: bool
    state: str | None
    as_of: str | None
    workers: tuple[WorkerAnswer, ...]
    problem: str | None = None


class ServiceAnswer(msgspec.Struct, frozen=True):
    """The present state of the service; `report` combines the reports of its `workers`, as `status --json` does.

    `report` is null if no service has reported yet. `peers` are the group's other machines, null unless they were asked for.
    """

    state: str
    report: StatusReport | None
    workers: tuple[WorkerAnswer, ...]
    served: ServedStatus
    peers: tuple[PeerAnswer, ...] | None = None


def service_answer(
    service: ServiceReport | None, served: ServedStatus, peers: tuple[PeerAnswer, ...] | None = None
) -> ServiceAnswer:
    if service is None:
        return ServiceAnswer(NOT_RUNNING, None, (), served, peers)
    return ServiceAnswer(service.state, service.whole, worker_answers(service), served, peers)


def worker_answers(service: ServiceReport | None) -> tuple[WorkerAnswer, ...]:
    return () if service is None else tuple(WorkerAnswer(state, report) for state, report in service.workers)


_log = logging.getLogger("resequencer.console")
_EVERY_SECONDS = 2.0
_TIMEOUT_SECONDS = 2.0
_OLD_SECONDS = 10.0
"""An answer that is older is waited for a moment when a person looks again."""

_WAIT_SECONDS = 1.0
_MAX_BYTES = 4 * 1024 * 1024
_MAX_WORKERS = 1_000
_MEANINGS = {
    401: "it refuses the login (401); set http.peers-token to a token that its users-file has",
    403: "its token may not look (403); give the token the role viewer",
    404: "it is no console of this version (404)",
}


class PeerFailed(Exception):
    """A peer gave no answer that can be used; the text says why."""


class Peers:
    """Asks each peer at most once in two seconds, and only while its answers are looked at. May be used from several threads."""

    def __init__(self, urls: Sequence[str], token: str, clock: Clock) -> None:
        self._peers = tuple(_Peer(url, token, clock) for url in urls)

    def look(self) -> tuple[PeerAnswer, ...]:
        """Return the last answer of each peer, in the order of the settings. It waits for a second at most."""
        asked = [each.ask() for each in self._peers]
        until = monotonic() + _WAIT_SECONDS
        for each in asked:
            if each is not None:
                each.wait(max(0.0, until - monotonic()))
        return tuple(each.answer for each in self._peers)


class _Peer:
    def __init__(self, url: str, token: str, clock: Clock) -> None:
        self._url = url.rstrip("/")
        self._token = token
        self._clock = clock
        self._lock = Lock()
        self._answered: Event | None = None
        self._asked_at: float | None = None
        self._ended_at: float | None = None
        self.answer = PeerAnswer(self._url, False, None, None, (), "it was not asked yet")

    def ask(self) -> Event | None:
        """Ask again if it is time. Return what tells of the end, if what is known is too old to be shown without waiting."""
        with self._lock:
            now = monotonic()
            if self._answered is None and (self._asked_at is None or now - self._asked_at >= _EVERY_SECONDS):
                self._asked_at, self._answered = now, Event()
                Thread(target=self._fetch, args=(self._answered,), name="peer", daemon=True).start()
            is_old = self._ended_at is None or now - self._ended_at > _OLD_SECONDS
            return self._answered if is_old else None

    def _fetch(self, answered: Event) -> None:
        try:
            answer = fetch(self._url, self._token)
            at = instant_text(self._clock.now())
            self.answer = PeerAnswer(self._url, True, answer.state, at, answer.workers)
        except PeerFailed as error:
            self.answer = msgspec.structs.replace(self.answer, is_answering=False, problem=str(error))
        except Exception:  # noqa: BLE001 - The outermost loop of the thread: the next look may succeed.
            _log.exception("the peer %s could not be asked", self._url)
            self.answer = msgspec.structs.replace(self.answer, is_answering=False, problem="it could not be asked; see the log")
        finally:
            with self._lock:
                self._answered, self._ended_at = None, monotonic()
            answered.set()


def fetch(url: str, token: str) -> ServiceAnswer:
    """Ask the console at this URL for its service. The whole exchange takes two seconds at most, however slowly it answers.

    Raises:
        PeerFailed: No answer, or one that cannot be used.
    """
    try:
        return asyncio.run(_fetch(url, token))
    except TimeoutError as error:
        raise PeerFailed(f"it does not answer within {_TIMEOUT_SECONDS:.0f} s") from error
    except httpx.HTTPError as error:
        why = printable(str(error)) or type(error).__name__
        raise PeerFailed(f"it does not answer: {why}") from error


async def _fetch(url: str, token: str) -> ServiceAnswer:
    """A limit for each read would not do: a peer that sends its answer byte by byte keeps each of them."""
    headers = {"Accept-Encoding": "identity", **({"Authorization": f"Bearer {token}"} if token else {})}
    async with (
        asyncio.timeout(_TIMEOUT_SECONDS),
        # No proxy of the environment gets the token, and no redirection leads it elsewhere.
        httpx.AsyncClient(timeout=_TIMEOUT_SECONDS, trust_env=False, follow_redirects=False) as client,
        client.stream("GET", f"{url}/api/v1/service", headers=headers) as answer,
    ):
        if answer.status_code != httpx.codes.OK:
            raise PeerFailed(_MEANINGS.get(answer.status_code, f"it answered {answer.status_code}"))
        return _checked(await _body(answer))


async def _body(answer: httpx.Response) -> bytes:
    body = bytearray()
    async for part in answer.aiter_raw():
        body += part
        if len(body) > _MAX_BYTES:
            raise PeerFailed(f"its answer is longer than {_MAX_BYTES:,} bytes")
    return bytes(body)


def _checked(body: bytes) -> ServiceAnswer:
    """Return the answer if the pages can show it."""
    try:
        answer = msgspec.json.decode(body, type=ServiceAnswer)
        for each in answer.workers:
            instant_of(each.report.reported_at)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise PeerFailed("its answer is not that of a console of this version") from error
    if len(answer.workers) > _MAX_WORKERS:
        raise PeerFailed(f"its answer has more than {_MAX_WORKERS:,} workers")
    return answer
