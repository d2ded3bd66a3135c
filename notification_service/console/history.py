"""What the console looks at in the background: what the service did over the last hours, and the group's other machines."""

import asyncio
import logging
import sqlite3
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic
from typing import NamedTuple

import httpx
import msgspec

from notification_service.connectors.dead_letters.actions import EditProposed
from notification_service.console.access.identity import Identity
from notification_service.console.dead_letters import Filter, list_dead_letters, open_dead_letters_for
from notification_service.console.find_unit import known_partitions
from notification_service.console.orders import OrderState, list_orders
from notification_service.console.sources import ArchiveDistance, Pace, Refresher, Sources
from notification_service.status.delivery import ReceiverCalls
from notification_service.status.report import StatusReport
from notification_service.status.service_report import NOT_RUNNING, ServedStatus, ServiceReport, sum_of_lags
from resequencer.clock import Clock, Instant, SteadyClock, instant_of, instant_text
from resequencer.errors import ResequencerError
from resequencer.order import PROPOSAL_MS
from resequencer.printable import printable
from resequencer.record import Partition
from storage.private_file import make_private

_log = logging.getLogger("resequencer.console")
_VERSION = 2
_MINUTE_MS = 60_000
_KEPT_MS = 7 * 86_400_000
_RECENT_MS = 5 * _MINUTE_MS
_TABLE = """
CREATE TABLE IF NOT EXISTS minutes (
    minute INTEGER PRIMARY KEY,
    records INTEGER NOT NULL,
    notifications INTEGER NOT NULL,
    dead_letters INTEGER NOT NULL,
    waiting INTEGER NOT NULL,
    lag INTEGER NOT NULL,
    delivered INTEGER NOT NULL DEFAULT 0
)
"""
_SINCE_1 = "ALTER TABLE minutes ADD COLUMN delivered INTEGER NOT NULL DEFAULT 0"


_ACCEPTED = "2xx"


class Minute(NamedTuple):
    """What happened in the minute that begins at `minute`; `waiting` units and `lag` are the largest that were seen in it.

    The lag is None if it was not known during the minute.
    """

    minute: Instant
    records: int = 0
    notifications: int = 0
    dead_letters: int = 0
    waiting: int = 0
    lag: int | None = None
    delivered: int = 0


class Speed(NamedTuple):
    """How fast the service is now, over the last minutes. `backlog_seconds` is the estimate until the lag is worked off.

    The estimate is None without a lag, and where nothing was read, so that it would be endless.
    """

    records_per_second: float
    notifications_per_second: float
    backlog_seconds: float | None


class _Seen(NamedTuple):
    """What one look found: what was done since the look before, and how far each partition was read."""

    at: Instant
    records: int
    notifications: int
    read_to: Mapping[str, int]


class _Counts(NamedTuple):
    """The counters of one worker's process; with another `process` they begin again at 0."""

    process: int | None
    records: int
    notifications: int
    dead_letters: int


class History:
    """Adds up what changes between two reports. May be used from several threads.

    If the file cannot be written, history is kept in memory only: a full disk must not hide what happens. Minutes are
    deleted only while `clock` is trusted.
    """

    def __init__(self, run_directory: Path, clock: SteadyClock) -> None:
        self._clock = clock
        self._file = run_directory / "console-history.db"
        self._lock = Lock()
        self._last: dict[int, _Counts] = {}
        self._delivered: dict[tuple[str, int], int] = {}
        self._seen: deque[_Seen] = deque()
        self._current = Minute(0)
        self._memory: deque[Minute] = deque(maxlen=_KEPT_MS // _MINUTE_MS)
        self._memory.extend(self._load())
        self._has_failed = False

    def add(self, service: ServiceReport, now: Instant, calls: Sequence[ReceiverCalls] = ()) -> None:
        """Note the reports of all workers at an instant of the clock, and the calls of receivers. Called every few seconds."""
        with self._lock:
            gained = [self._gained(report) for _, report in service.workers]
            minute = now - now % _MINUTE_MS
            if minute != self._current.minute:
                self._finish(minute)
            records, notifications, dead_letters = (sum(column) for column in zip(*gained, strict=True))
            whole, current = service.whole, self._current
            lags = [each for each in (current.lag, sum_of_lags(each.lag for each in whole.partitions)) if each is not None]
            self._current = Minute(
                minute,
                current.records + records,
                current.notifications + notifications,
                current.dead_letters + dead_letters,
                max(current.waiting, whole.units.waiting),
                max(lags, default=None),
                current.delivered + sum(map(self._gained_by, calls)),
            )
            self._seen.append(_Seen(now, records, notifications, {each.partition: each.read_to for each in whole.partitions}))
            while self._seen and not 0 <= now - self._seen[0].at <= _RECENT_MS:
                self._seen.popleft()

    def minutes(self, since: Instant) -> Sequence[Minute]:
        """Return the minutes from `since` on, the oldest first. Minutes in which the console did not run are missing."""
        with self._lock:
            return [each for each in (*self._memory, self._current) if each.minute and each.minute >= since]

    def speed(self, lag: int) -> Speed | None:
        """Return how fast the service is; None before there are two reports. `lag` is what is unread now."""
        with self._lock:
            if len(self._seen) < 2:
                return None
            first, *others = self._seen
        last = others[-1]
        seconds = max(1, last.at - first.at) / 1_000
        records, notifications = sum(each.records for each in others), sum(each.notifications for each in others)
        common = last.read_to.keys() & first.read_to.keys()
        progress = sum(max(0, last.read_to[name] - first.read_to[name]) for name in common) / seconds
        return Speed(records / seconds, notifications / seconds, lag / progress if lag and progress else None)

    def _gained(self, report: StatusReport) -> tuple[int, int, int]:
        """What a worker has done since its last report. A new process begins at 0; what the old one did last is unknown."""
        notifications, dead_letters = sum(report.notifications.values()), sum(report.dead_letters.values())
        now = _Counts(report.worker_process_id, report.counts.get("records", 0), notifications, dead_letters)
        last = self._last.get(report.slot)
        self._last[report.slot] = now
        if last is None:
            return 0, 0, 0
        if last.process != now.process or now.records < last.records:
            last = _Counts(now.process, 0, 0, 0)
        return now.records - last.records, now.notifications - last.notifications, now.dead_letters - last.dead_letters

    def _gained_by(self, calls: ReceiverCalls) -> int:
        """How many calls a receiver has accepted since the last look, by one worker. A worker that was restarted begins at 0."""
        key, delivered = (calls.receiver, calls.slot), calls.answers.get(_ACCEPTED, 0)
        last = self._delivered.get(key)
        self._delivered[key] = delivered
        return 0 if last is None else delivered - last if delivered >= last else delivered

    def _finish(self, minute: Instant) -> None:
        if self._current.minute:
            self._memory.append(self._current)
            self._save(self._current)
        self._current = Minute(minute)

    def _save(self, minute: Minute) -> None:
        try:
            with closing(self._connect()) as connection, connection:
                connection.execute("INSERT OR REPLACE INTO minutes VALUES (?, ?, ?, ?, ?, ?, ?)", _row(minute))
                if self._clock.is_trusted:
                    connection.execute("DELETE FROM minutes WHERE minute < ?", (minute.minute - _KEPT_MS,))
            self._has_failed = False
        except (sqlite3.Error, OSError) as error:
            if not self._has_failed:
                _log.warning("%s cannot be written, the history is kept in memory only: %s", self._file, error)
            self._has_failed = True

    def _load(self) -> list[Minute]:
        """What an earlier console kept. A damaged file is deleted."""
        try:
            with closing(self._connect()) as connection:
                return [_minute(*row) for row in connection.execute("SELECT * FROM minutes ORDER BY minute")]
        except (sqlite3.OperationalError, OSError):
            return []  # It is locked, or the disk is full: what it holds may be read again.
        except (sqlite3.DatabaseError, TypeError):
            with suppress(OSError):
                self._file.unlink(missing_ok=True)
            return []

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(make_private(self._file), timeout=1)
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version == 0:
            connection.execute(_TABLE)
            connection.execute(f"PRAGMA user_version = {_VERSION}")
        elif version == 1:
            connection.execute(_SINCE_1)
            connection.execute(f"PRAGMA user_version = {_VERSION}")
        elif version != _VERSION:
            connection.close()
            raise sqlite3.DatabaseError(f"version {version}")
        return connection


_NOT_KNOWN = -1
"""What the file has for a lag that is not known."""


def _row(minute: Minute) -> Minute:
    return minute._replace(lag=_NOT_KNOWN) if minute.lag is None else minute


def _minute(*row: int) -> Minute:
    found = Minute(*row)
    return found._replace(lag=None) if found.lag == _NOT_KNOWN else found


_PACE = Pace(float("inf"), min_pause_seconds=5.0, max_part=1.0)
_DEAD_LETTERS_EVERY_SECONDS = 30.0
_PROPOSALS_EVERY_SECONDS = 5.0
_ARCHIVE_EVERY_SECONDS = 30.0
_PAUSE_FACTOR = 50
"""Logs and the archive are looked at again only after this many times as long as it took, since they need reading."""

_READER = Identity("console", frozenset(), sends_by_itself=False)


class Sampler:
    """Keeps the history, the number of dead letters about which nothing was done, that of orders to approve, and the archive's
    distances.

    With `has_approval` some kinds of orders need a second person.
    """

    def __init__(self, sources: Sources, history: History, *, has_approval: bool = False) -> None:
        self._sources = sources
        self._history = history
        self._dead_letters_due = self._dead_letters_not_before = 0.0
        self._dead_letters_reported = -1
        self._open_orders = sources.open_orders if has_approval else None
        self._proposals_due = 0.0
        self._archive_due = 0.0
        self._refresher = Refresher("state of the service", self._refresh, lambda: None, [_PACE])
        self.new_dead_letters: Mapping[str, int] | None = None
        """By reason; None before they were counted, and while they cannot be read."""
        self.proposed_edits: int | None = None
        """Dead letters of which a person proposed an edit; None as above."""
        self.open_proposals: int | None = None
        """Orders that wait for a second person; None before they were counted, if they cannot be read, and without approval."""
        self.archive_distances: Mapping[Partition, ArchiveDistance] | None = None
        """None before the first look, and while the brokers or the archive cannot be read."""

    def start(self) -> None:
        self._refresher.start()

    def stop(self) -> None:
        self._refresher.stop()

    def sample(self) -> None:
        """Look once."""
        report = self._sources.find_report()
        if report is not None:
            self._history.add(report, self._sources.steady_clock.now(), self._sources.find_delivery().receiver_calls)
        # What has become one since is counted at once, as far as counting takes little of the time.
        reported = -1 if report is None else sum(report.whole.dead_letters.values())
        is_changed, self._dead_letters_reported = reported != self._dead_letters_reported, reported
        if is_changed:
            self._dead_letters_due = min(self._dead_letters_due, self._dead_letters_not_before)
        if monotonic() >= self._dead_letters_due:
            self._count_dead_letters()
        if monotonic() >= self._proposals_due:
            self.count_proposals()
        if monotonic() >= self._archive_due:
            self.look_at_archive()

    def count_proposals(self) -> None:
        """Count the proposals again."""
        if self._open_orders is None:
            return
        begun, now = monotonic(), self._sources.clock.now()
        try:
            known, _ = known_partitions(self._sources, self._sources.find_report())
            with closing(self._open_orders()) as book:
                listed = list_orders(book.orders(known, max(0, now - PROPOSAL_MS)), (), now)
            self.open_proposals = sum(each.state is OrderState.PROPOSED for each in listed)
        except ResequencerError:
            self.open_proposals = None
        finally:
            self._proposals_due = monotonic() + max(_PROPOSALS_EVERY_SECONDS, _PAUSE_FACTOR * (monotonic() - begun))

    def look_at_archive(self) -> None:
        """Read the distances again."""
        begun = monotonic()
        try:
            self.archive_distances = self._sources.find_archive_distances()
        except ResequencerError:
            self.archive_distances = None
        finally:
            self._archive_due = monotonic() + max(_ARCHIVE_EVERY_SECONDS, _PAUSE_FACTOR * (monotonic() - begun))

    def _refresh(self) -> bool:
        self.sample()
        return False

    def _count_dead_letters(self) -> None:
        begun = monotonic()
        try:
            with open_dead_letters_for(self._sources, _READER) as store:
                found = list_dead_letters(store, Filter(), self._sources.clock.now())
            self.new_dead_letters = dict(found.new_by_reason)
            self.proposed_edits = found.by_state.get(EditProposed.state, 0)
        except ResequencerError:
            self.new_dead_letters = self.proposed_edits = None
        finally:
            self._dead_letters_not_before = monotonic() + _PAUSE_FACTOR * (monotonic() - begun)
            self._dead_letters_due = max(self._dead_letters_not_before, monotonic() + _DEAD_LETTERS_EVERY_SECONDS)


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


_ASKED_EVERY_SECONDS = 2.0
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
        """Ask again if it is time. Return the event of the end, if what is known is too old to be shown without waiting."""
        with self._lock:
            now = monotonic()
            if self._answered is None and (self._asked_at is None or now - self._asked_at >= _ASKED_EVERY_SECONDS):
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
