"""Stores as the console shows them: a copy of their values, kept fresh by a thread while people look, and what they complete."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from time import monotonic
from typing import NamedTuple

import msgspec

from guardian.ports import TransportUnavailable
from notification_service.aggregation.completions import Completed
from notification_service.aggregation.view import StoreView, ValueChange
from notification_service.console.sources import FRESH_MS, Pace, Refresher, StoreSource
from notification_service.console.stores.feed import Describe, StoreFeed
from resequencer.clock import Clock, Instant
from resequencer.errors import ResequencerError
from resequencer.printable import printable

PAGE = Pace(60.0, 1.0, 1 / 3)
"""How fresh values are kept for a page that is open."""
_SEARCH_SECONDS = 2.0
_MAX_BYTES = 4 << 20
"""How long the values of one answer may be, but for the last one."""
_CHANGES = 20


class StoreFreshness(NamedTuple):
    """As of when what is shown is right, None if nothing was ever read; why it is not newer, and since when that is so."""

    as_of: Instant | None = None
    problem: str | None = None
    since: Instant | None = None


class StoreWatch:
    """The values of a store as the console shows them: what a request reads of them is what was there at the last refresh."""

    def __init__(
        self, name: str, source: StoreSource, clock: Clock, on_change: Callable[[], None], paces: Sequence[Pace] = (PAGE,)
    ) -> None:
        self._source, self._clock, self._on_change = source, clock, on_change
        self._view: StoreView | None = None
        self.freshness = StoreFreshness()
        self._lock = Lock()
        self._refresher = Refresher(name, self.refresh, self._close_view, paces)

    def start(self) -> None:
        """Start the thread. Without it, `refresh` refreshes."""
        self._refresher.start()

    def close(self) -> None:
        self._refresher.stop()

    def look(self) -> StoreFreshness:
        """Note that a page is open, for which all is kept fresh. If it is old, wait a moment for a refresh."""
        as_of = self.freshness.as_of
        self._refresher.look(PAGE, is_old=as_of is None or self._clock.now() - as_of > FRESH_MS)
        return self.freshness

    @contextmanager
    def reading(self) -> Iterator[StoreView]:
        """A view for this request."""
        view = self._source.open_copies()
        try:
            yield view
        finally:
            view.close()

    def refresh(self) -> bool:
        """Read what there is now. What cannot be read is noted, and tried again the next time. Return False, always."""
        with self._lock:
            now, before = self._clock.now(), self.freshness
            try:
                if self._view is None:
                    self._view = self._source.open_view()
                self._view.refresh()
                self._take(self._view)
                self.freshness = StoreFreshness(now)
            except ResequencerError as error:
                since = now if before.problem is None else before.since
                self.freshness = StoreFreshness(before.as_of, printable(str(error)), since)
                self._close_view()
        self._on_change()
        return False

    def _take(self, view: StoreView) -> None:
        """Make of the view, which is fresh, what the console has beside it. May raise any ResequencerError."""
        view.take_changed()

    def _close_view(self) -> None:
        view, self._view = self._view, None
        if view is not None:
            view.close()


class CompletedValue(msgspec.Struct, frozen=True):
    """A record that followed from a change of `key`. Its value is what `on_value` returned; of another program, its text.

    Without the role payments the value is null, and `is_hidden` is set.
    """

    key: str | None
    value: msgspec.Raw
    is_hidden: bool


def describe_value(record: Completed, sees_values: bool) -> CompletedValue:
    key = None if record.key is None else record.key.decode(errors="replace")
    return CompletedValue(key, json_value(record.value, sees_values=sees_values), not sees_values)


def json_value(value: bytes | None, *, sees_values: bool) -> msgspec.Raw:
    """Return a value as JSON in one line: what is no JSON as a text, none and what this person may not see as null."""
    if value is None or not sees_values:
        return msgspec.Raw(b"null")
    try:
        msgspec.json.decode(value.decode())
        return msgspec.Raw(msgspec.json.format(value, indent=-1))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.Raw(msgspec.json.encode(value.decode(errors="replace")))


class Values(NamedTuple):
    """Keys or members with their values, and behind which one others follow. If not `is_whole`, the search was given up there."""

    values: tuple[tuple[str, bytes], ...]
    after: str | None
    is_whole: bool = True


class WatchedStore:
    """A store, what is known of its values, and what it completes. May be used from several threads."""

    watch: StoreWatch

    def __init__(self, source: StoreSource, clock: Clock, describe: Describe) -> None:
        self.source = source
        self.feed = StoreFeed(source.open_completions, clock, describe)

    def start(self) -> None:
        self.watch.start()

    def close(self) -> None:
        self.feed.close()
        self.watch.close()


class OwnStore(WatchedStore):
    """A store of a user's own."""

    def __init__(self, source: StoreSource, clock: Clock) -> None:
        super().__init__(source, clock, describe_value)
        self.watch = StoreWatch("values", source, clock, self.feed.note_change)
        self._changes = Lock()

    def find_values(self, text: str, after: str, limit: int) -> Values:
        """Return the first keys behind `after` of which `text` is a part, whatever its case; fewer if their values are long.

        Raises:
            The errors of the view.
        """
        until, folded = monotonic() + _SEARCH_SECONDS, text.casefold()
        found, size = list[tuple[str, bytes]](), 0
        with self.watch.reading() as view:
            for key in view.keys(after):
                if folded in key.casefold() and (head := view.find(key)) is not None:
                    if found and (len(found) == limit or size > _MAX_BYTES):
                        return Values(tuple(found), found[-1][0])
                    found.append((key, head.body))
                    size += len(head.body)
                if monotonic() > until:
                    return Values(tuple(found), key, is_whole=False)
        return Values(tuple(found), None)

    def find_members(self, view: StoreView, key: str, after: str, limit: int) -> Values:
        """Return the first members of a key behind `after`; fewer if their values are long. Raises: the errors of the view."""
        members = view.members(key, after, limit + 1)
        found, size = list[tuple[str, bytes]](), 0
        for each in members[:limit]:
            if found and size > _MAX_BYTES:
                break
            found.append(each)
            size += len(each[1])
        return Values(tuple(found), found[-1][0] if len(found) < len(members) else None)

    def find_changes(self, key: str) -> Sequence[ValueChange] | None:
        """Return the last changes of a key and its members, the latest first; None: they are not kept.

        Brokers are asked by one request at a time, and not while they do not answer.

        Raises:
            TransportUnavailable, TransportRefused: They are not known now.
        """
        if (problem := self.watch.freshness.problem) is not None:
            raise TransportUnavailable(problem)
        if not self._changes.acquire(timeout=_SEARCH_SECONDS):
            raise TransportUnavailable("other pages ask for changes; try again in a moment")
        try:
            return self.source.find_changes(key, _CHANGES)
        finally:
            self._changes.release()
