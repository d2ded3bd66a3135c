"""Keeps the index of the groups fresh, in a thread, while somebody looks."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread
from time import monotonic
from typing import NamedTuple

from notification_service.aggregation.view import StoreView
from notification_service.console.groups.index import Found, GroupFilter, GroupIndex, GroupTotals, IndexUnusable
from notification_service.console.groups.port import GroupSource
from resequencer.clock import Clock, Instant
from resequencer.errors import ResequencerError
from resequencer.printable import printable

_log = logging.getLogger("resequencer.console")
_PAUSE_SECONDS, _GLANCE_PAUSE_SECONDS = 2.0, 60.0
_SHARE, _GLANCE_SHARE = 1 / 3, 1 / 50
"""The part of the time that is spent on refreshing at most, while a page is open and otherwise."""
_LOOKED_AT_SECONDS, _GLANCED_AT_SECONDS = 60.0, 300.0
_FIRST_WAIT_SECONDS = 1.0
_TICK_SECONDS = 0.5
_FRESH_MS = 5_000


class GroupsFreshness(NamedTuple):
    """As of when what is shown is right, None if nothing was ever read; why it is not newer, and since when that is so."""

    as_of: Instant | None = None
    problem: str | None = None
    since: Instant | None = None


class GroupsWatch:
    """The groups as the console shows them: what it reads of them at a request is what was there at the last refresh."""

    def __init__(self, source: GroupSource, clock: Clock, on_change: Callable[[], None] = lambda: None) -> None:
        self._source, self._clock, self._on_change = source, clock, on_change
        self._view: StoreView | None = None
        self._index: GroupIndex | None = None
        self._freshness = GroupsFreshness()
        self._lock = Lock()
        self._looked_at = self._glanced_at = float("-inf")
        self._is_wanted, self._is_refreshed = Event(), Event()
        self._is_stopping = False
        self._thread: Thread | None = None
        self.totals: GroupTotals | None = None
        """As of the last refresh; None before the first."""

    def start(self) -> None:
        """Start the thread. Without it, `refresh` refreshes."""
        if self._thread is None:
            self._thread = Thread(target=self._run, name="groups", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop the thread, which ends with the process if a server does not answer it in time."""
        self._is_stopping = True
        self._is_wanted.set()
        if self._thread is not None:
            self._thread.join(_FIRST_WAIT_SECONDS)
            self._thread = None
        else:
            self._let_go()

    def look(self) -> GroupsFreshness:
        """Tell that somebody looks, for whom all is kept fresh. If it is old, wait a moment for a refresh."""
        self._looked_at = monotonic()
        self._is_wanted.set()
        if self._thread is not None and self._is_old():
            self._is_refreshed.clear()
            self._is_refreshed.wait(_FIRST_WAIT_SECONDS)
        return self._freshness

    def glance(self) -> GroupTotals | None:
        """Tell that somebody looks for whom a minute is fresh enough. Return the totals, None while the groups cannot be read."""
        self._glanced_at = monotonic()
        self._is_wanted.set()
        return self.totals if self._freshness.problem is None else None

    def find(self, wanted: GroupFilter, most: int) -> Found:
        """Return the first keys of a filter.

        Raises:
            IndexUnusable: The index cannot be read.
        """
        return Found() if self._index is None else self._index.find(wanted, most)

    @contextmanager
    def reading(self) -> Iterator[StoreView]:
        """A view for this request."""
        view = self._source.open_copies()
        try:
            yield view
        finally:
            view.close()

    def refresh(self) -> None:
        """Read what there is now. What cannot be read is noted, and tried again the next time."""
        with self._lock:
            now, before = self._clock.now(), self._freshness
            try:
                self.totals = self._refresh()
                self._freshness = GroupsFreshness(now)
            except ResequencerError as error:
                if isinstance(error, IndexUnusable) and error.is_damaged and self._index is not None:
                    self._index.delete()
                since = now if before.problem is None else before.since
                self._freshness = GroupsFreshness(before.as_of, printable(str(error)), since)
                self._let_go()
            finally:
                self._is_refreshed.set()
        self._on_change()

    def _refresh(self) -> GroupTotals:
        if self._view is None:
            self._view = self._source.open_view()
        if self._index is None:
            self._index = GroupIndex(self._source.claim() / "index.db")
        self._view.refresh()
        return self._index.refresh(self._view)

    def _let_go(self) -> None:
        """Close the view. The index remains: what it knows is shown with its age."""
        view, self._view = self._view, None
        if view is not None:
            view.close()
        if self._is_stopping and self._index is not None:
            self._index.delete()

    def _is_old(self) -> bool:
        as_of = self._freshness.as_of
        return as_of is None or self._clock.now() - as_of > _FRESH_MS

    def _run(self) -> None:
        try:
            self._wait_until(self._is_looked_at)
            while not self._is_stopping:
                began = monotonic()
                try:
                    self.refresh()
                except Exception:  # noqa: BLE001 - A fault in our code must not end the thread; the log has it.
                    _log.exception("the groups could not be refreshed")
                self._pause(monotonic() - began)
        finally:
            self._let_go()

    def _pause(self, spent_seconds: float) -> None:
        ended = monotonic()

        def is_due() -> bool:
            if not self._is_looked_at():
                return False
            is_page = monotonic() - self._looked_at < _LOOKED_AT_SECONDS
            least, share = (_PAUSE_SECONDS, _SHARE) if is_page else (_GLANCE_PAUSE_SECONDS, _GLANCE_SHARE)
            return monotonic() - ended >= max(least, spent_seconds * (1 / share - 1))

        self._wait_until(is_due)

    def _is_looked_at(self) -> bool:
        now = monotonic()
        return now - self._looked_at < _LOOKED_AT_SECONDS or now - self._glanced_at < _GLANCED_AT_SECONDS

    def _wait_until(self, is_due: Callable[[], bool]) -> None:
        while not self._is_stopping and not is_due():
            self._is_wanted.wait(_TICK_SECONDS if self._is_looked_at() else None)
            self._is_wanted.clear()
