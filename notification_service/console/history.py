"""What the service did over the last hours, a row for each minute, kept by the console in the run directory."""

import logging
import sqlite3
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from notification_service.status.report import StatusReport
from notification_service.status.service_report import ServiceReport
from resequencer.clock import Instant, SteadyClock
from storage.private_file import make_private

_log = logging.getLogger("resequencer.console")
_VERSION = 1
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
    lag INTEGER NOT NULL
)
"""


class Minute(NamedTuple):
    """What happened in the minute that begins at `minute`; `waiting` units and `lag` are the largest that were seen in it."""

    minute: Instant
    records: int = 0
    notifications: int = 0
    dead_letters: int = 0
    waiting: int = 0
    lag: int = 0


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
    """The counters of one worker's process; `process` tells when they begin anew."""

    process: int | None
    records: int
    notifications: int
    dead_letters: int


class History:
    """Adds up what changes between two reports. May be used from several threads.

    If the file cannot be written, history is kept in memory only: a disk without room must not hide what happens. Minutes are
    deleted only while `clock` is trusted.
    """

    def __init__(self, run_directory: Path, clock: SteadyClock) -> None:
        self._clock = clock
        self._file = run_directory / "console-history.db"
        self._lock = Lock()
        self._last: dict[int, _Counts] = {}
        self._seen: deque[_Seen] = deque()
        self._current = Minute(0)
        self._memory: deque[Minute] = deque(maxlen=_KEPT_MS // _MINUTE_MS)
        self._memory.extend(self._load())
        self._has_failed = False

    def add(self, service: ServiceReport, now: Instant) -> None:
        """Note the reports of all workers at an instant of the clock. Called every few seconds."""
        with self._lock:
            gained = [self._gained(report) for _, report in service.workers]
            minute = now - now % _MINUTE_MS
            if minute != self._current.minute:
                self._finish(minute)
            records, notifications, letters = (sum(column) for column in zip(*gained, strict=True))
            whole, current = service.whole, self._current
            lag = sum(each.lag or 0 for each in whole.partitions)
            self._current = Minute(
                minute,
                current.records + records,
                current.notifications + notifications,
                current.dead_letters + letters,
                max(current.waiting, whole.units.waiting),
                max(current.lag, lag),
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
        notifications, letters = sum(report.notifications.values()), sum(report.dead_letters.values())
        now = _Counts(report.worker_process_id, report.counts.get("records", 0), notifications, letters)
        last = self._last.get(report.slot)
        self._last[report.slot] = now
        if last is None:
            return 0, 0, 0
        if last.process != now.process or now.records < last.records:
            last = _Counts(now.process, 0, 0, 0)
        return now.records - last.records, now.notifications - last.notifications, now.dead_letters - last.dead_letters

    def _finish(self, minute: Instant) -> None:
        if self._current.minute:
            self._memory.append(self._current)
            self._save(self._current)
        self._current = Minute(minute)

    def _save(self, minute: Minute) -> None:
        try:
            with closing(self._connect()) as connection, connection:
                connection.execute("INSERT OR REPLACE INTO minutes VALUES (?, ?, ?, ?, ?, ?)", minute)
                if self._clock.is_trusted:
                    connection.execute("DELETE FROM minutes WHERE minute < ?", (minute.minute - _KEPT_MS,))
            self._has_failed = False
        except (sqlite3.Error, OSError) as error:
            if not self._has_failed:
                _log.warning("%s cannot be written, the history is kept in memory only: %s", self._file, error)
            self._has_failed = True

    def _load(self) -> list[Minute]:
        """What an earlier console kept. A damaged file is begun anew."""
        try:
            with closing(self._connect()) as connection:
                return [Minute(*row) for row in connection.execute("SELECT * FROM minutes ORDER BY minute")]
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
        elif version != _VERSION:
            connection.close()
            raise sqlite3.DatabaseError(f"version {version}")
        return connection
