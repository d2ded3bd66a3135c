"""Keeps the index of the groups fresh, in a thread, while somebody looks.

`0:12,3:7` says that reading goes on at offset 12 of partition 0 and at offset 7 of partition 3. All partitions are named: so one
id tells exactly which records were sent, in whatever order those of different partitions came. Of a file, bytes follow the `0:`.
"""

import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic
from typing import NamedTuple, Protocol

from notification_service.aggregation.commands import CommandWriter
from notification_service.aggregation.completions import CompletionsLog, Place
from notification_service.aggregation.payments.commands import encode_close
from notification_service.aggregation.view import StoreView
from notification_service.console.groups.feed import CompletionFeed
from notification_service.console.groups.index import Found, GroupFilter, GroupIndex, GroupTotals, IndexUnusable
from notification_service.status.aggregation import AggregationStatus
from resequencer.clock import Clock, Instant
from resequencer.errors import ResequencerError
from resequencer.printable import printable

MAX_CHARACTERS = 16_384
_TEXT = re.compile(r"\d{1,6}:\d{1,18}(?:,\d{1,6}:\d{1,18})*", re.ASCII)


class NoPlace(ValueError):
    """The text is no place."""


def place_text(place: Place) -> str:
    return ",".join(f"{number}:{offset}" for number, offset in sorted(place.items()))


def place_of(text: str) -> Place:
    """Raises NoPlace: The text was not made by `place_text`."""
    if len(text) > MAX_CHARACTERS or not _TEXT.fullmatch(text):
        raise NoPlace(text[:100])
    pairs = [each.split(":") for each in text.split(",")]
    place = {int(number): int(offset) for number, offset in pairs}
    if len(place) < len(pairs):
        raise NoPlace(text[:100])
    return place


class GroupSource(Protocol):
    """The groups of a service. Whatever is opened is used by one thread, and closed by its user.

    Any call but `find_status` may raise the errors of a transport (guardian/ports.py).
    """

    def claim(self) -> Path:
        """Return a directory that is this console's alone until its process ends. The same at each call."""
        ...

    def open_view(self) -> StoreView:
        """Open the one view of this process that is refreshed."""
        ...

    def open_copies(self) -> StoreView:
        """Open a view of the values as the refreshed view has them, for a request. It waits for no server."""
        ...

    def open_commands(self) -> CommandWriter: ...

    def open_completions(self) -> CompletionsLog: ...

    def find_status(self) -> AggregationStatus:
        """Return what the aggregation workers on this machine report."""
        ...


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


_REMEMBERED = 1_000


class GivenClose(NamedTuple):
    """Who has told to close a group by this console, and when."""

    by: str
    at: Instant


class Groups:
    """May be used from several threads."""

    def __init__(self, source: GroupSource, clock: Clock) -> None:
        self.source = source
        self._clock = clock
        self.feed = CompletionFeed(source.open_completions, clock)
        self.watch = GroupsWatch(source, clock, self.feed.tell_change)
        self._given: OrderedDict[str, GivenClose] = OrderedDict()
        self._lock = Lock()

    def close_group(self, key: str, by: str, because: str) -> None:
        """Give the command, durably. The worker that has the group carries it out.

        Raises:
            The errors of a transport: it is not known whether it was given; it is harmless to give it again.
        """
        with closing(self.source.open_commands()) as commands:
            commands.update(key, None, encode_close(by, because))
        with self._lock:
            self._given[key] = GivenClose(by, self._clock.now())
            self._given.move_to_end(key)
            while len(self._given) > _REMEMBERED:
                self._given.popitem(last=False)

    def find_given(self, key: str) -> GivenClose | None:
        """Return who told to close the group; None if nobody did, or if it was long ago."""
        with self._lock:
            return self._given.get(key)

    def start(self) -> None:
        self.watch.start()

    def close(self) -> None:
        self.feed.close()
        self.watch.close()
