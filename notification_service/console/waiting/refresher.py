"""Keeps the copy of the waiting index fresh, in a thread, while people look at it."""

import logging
from collections.abc import Mapping, Sequence
from threading import Event, Lock, Thread
from time import monotonic

import msgspec

from notification_service.console.sources import Sources
from notification_service.console.waiting.copy import CopyUnusable, WaitingCopy
from notification_service.console.waiting.query import WaitingFilter, WaitingPage, find_partitions_of, read_page
from resequencer.clock import Instant
from resequencer.errors import ResequencerError
from resequencer.printable import printable
from resequencer.record import Partition
from storage.view_port import StorageView

_log = logging.getLogger("resequencer.console")
_LOOKED_AT_SECONDS = 60.0
_PAUSE_SECONDS, _IDLE_PAUSE_SECONDS = 1.0, 10.0
_SHARE, _IDLE_SHARE = 1 / 3, 1 / 50
_FIRST_WAIT_SECONDS = 1.0
_FRESH_MS = 5_000


class Freshness(msgspec.Struct, frozen=True):
    """As of when a partition's rows are right, None if they were never read, and why they are not newer."""

    partition: str
    as_of: Instant | None
    problem: str | None = None


class WaitingAnswer(msgspec.Struct, frozen=True):
    """A page, and how old each partition's part of it is. `problem` says why there is no page, or no newer one."""

    page: WaitingPage
    partitions: tuple[Freshness, ...]
    problem: str | None = None

    @property
    def as_of(self) -> Instant | None:
        """The instant as of which all of it is right, None if a part was never read."""
        instants = [each.as_of for each in self.partitions]
        known = [each for each in instants if each is not None]
        return min(known) if known and len(known) == len(instants) else None


def pause_after(spent_seconds: float, wholes: int = 0, *, is_looked_at: bool) -> float:
    """Return how long to pause, in seconds, after a refresh that took so long.

    A third of the time is spent on refreshing at most while people look, a fiftieth otherwise. `wholes` is the number of the last
    refreshes in a row that listed the whole of a partition. After the first of them the changes since are read soon: the longer
    that is put off, the more they are, until the whole is to be listed once more.
    """
    least, share = (_PAUSE_SECONDS, _SHARE) if is_looked_at else (_IDLE_PAUSE_SECONDS, _IDLE_SHARE)
    return least if wholes == 1 else max(least, spent_seconds * (1 / share - 1))


class WaitingUnits:
    """The waiting units as the console shows them. With storage `none` there is no copy, and `is_stored` is false."""

    def __init__(self, sources: Sources) -> None:
        self.is_stored = sources.open_view is not None
        self._sources = sources
        self._copy = WaitingCopy(sources.run_directory, sources.storage)
        self._view: StorageView | None = None
        self._lock = Lock()
        self._freshness: Mapping[str, Freshness] = {}
        self._problem: str | None = None
        self._wholes = 0
        self._asked_at: float | None = None
        self._is_wanted, self._is_refreshed = Event(), Event()
        self._is_stopping = False
        self._thread: Thread | None = None

    def start(self) -> None:
        """Start the thread. Without it, `refresh` refreshes."""
        if self.is_stored and self._thread is None:
            self._thread = Thread(target=self._run, name="waiting", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop the thread, which ends with the process if a storage does not answer it in time."""
        self._is_stopping = True
        self._is_wanted.set()
        if self._thread is not None:
            self._thread.join(_FIRST_WAIT_SECONDS)
            self._thread = None

    def ask(self, asked: WaitingFilter, after: str | None = None, limit: int = 50) -> WaitingAnswer:
        """Return a page. A copy that was not looked at for a while is refreshed first, if that is quick.

        Raises:
            BadPlace: `after` is no place of a page.
        """
        self._want()
        page, problem = WaitingPage(), self._problem
        try:
            with self._copy.reading() as connection:
                if connection is not None:
                    page = read_page(connection, asked, after, limit)
        except CopyUnusable as error:
            problem = f"the copy of the waiting units cannot be read: {error}"
        return WaitingAnswer(page, tuple(self._freshness.values()), problem)

    def find_partitions(self, unit: str) -> Sequence[Partition]:
        """Return the partitions in which the unit waited when the copy was refreshed; none if there is no copy."""
        try:
            with self._copy.reading() as connection:
                names = [] if connection is None else find_partitions_of(connection, unit)
        except CopyUnusable:
            return ()
        return [found for name in names if (found := Partition.find(name)) is not None]

    def refresh(self) -> None:
        """Read what has changed in each partition. What cannot be read or written is noted, and tried again the next time."""
        with self._lock:
            is_changed_alone = True
            try:
                known = self._copy.markers()
                self._problem = None
                names = self._partitions(known)
                noted = {name: Freshness(name, known.get(name, (None, None))[1]) for name in names}
                self._freshness = {**noted, **self._freshness}
                for name in names:
                    if self._is_stopping:
                        return
                    is_changed_alone &= self._refresh(name, known.get(name, (None, None))[0])
            except CopyUnusable as error:
                self._problem = f"the copy of the waiting units cannot be written: {error}"
                if error.is_damaged:
                    self._copy.delete()
            finally:
                self._wholes = 0 if is_changed_alone else self._wholes + 1
                self._is_refreshed.set()

    def _refresh(self, name: str, marker: str | None) -> bool:
        """Bring one partition up to date. Return whether that took less than the whole."""
        partition = Partition.find(name)
        assert partition is not None
        now = self._sources.clock.now()
        before = self._freshness.get(name, Freshness(name, None))
        try:
            changes = self._opened_view().find_waiting(partition, marker)
            if changes is not None:
                self._copy.take(name, changes, now)
            self._freshness = {**self._freshness, name: Freshness(name, now)}
        except CopyUnusable:
            raise
        except ResequencerError as error:
            self._freshness = {**self._freshness, name: Freshness(name, before.as_of, printable(str(error)))}
            return True
        return changes is None or not changes.is_whole

    def _partitions(self, known: Mapping[str, object]) -> list[str]:
        """Return the partitions of the input and those of the copy, by name."""
        names = set(known)
        try:
            names |= {str(each) for each in self._sources.find_partitions()}
        except ResequencerError as error:
            self._problem = f"the partitions of the input are not known: {printable(str(error))}"
        report = self._sources.find_report()
        names |= set() if report is None else {each.partition for each in report.whole.partitions}
        return sorted(names)

    def _opened_view(self) -> StorageView:
        if self._view is None:
            assert self._sources.open_view is not None
            self._view = self._sources.open_view()
        return self._view

    def _want(self) -> None:
        self._asked_at = monotonic()
        if self._thread is None:
            return
        now = self._sources.clock.now()
        ages = [now - each.as_of for each in self._freshness.values() if each.as_of is not None]
        if not ages or max(ages) > _FRESH_MS:
            self._is_refreshed.clear()
            self._is_wanted.set()
            self._is_refreshed.wait(_FIRST_WAIT_SECONDS)

    def _is_looked_at(self) -> bool:
        return self._asked_at is not None and monotonic() - self._asked_at < _LOOKED_AT_SECONDS

    def _run(self) -> None:
        try:
            while not self._is_stopping:
                began = monotonic()
                try:
                    self.refresh()
                except Exception:  # noqa: BLE001 - A fault in our code must not end the thread; the log has it.
                    _log.exception("the waiting units could not be refreshed")
                self._pause(began)
        finally:
            if self._view is not None:
                self._view.close()

    def _pause(self, began: float) -> None:
        """Wait until the next refresh is due. A request ends a pause of the idle kind."""
        ended = monotonic()
        while not self._is_stopping:
            pause = pause_after(ended - began, self._wholes, is_looked_at=self._is_looked_at())
            left = ended + pause - monotonic()
            if left <= 0:
                return
            self._is_wanted.wait(left)
            self._is_wanted.clear()
