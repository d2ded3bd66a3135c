"""What a store has completed, read once for all that listen: a record that is not kept any more is read again from its place.

The payments of messages are one store, users' own are the others.
"""

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from threading import Event, Lock, Thread
from time import monotonic
from typing import NamedTuple

import msgspec

from notification_service.aggregation.completions import Completed, CompletionsLog, Place
from resequencer.clock import Clock, Instant
from resequencer.errors import ResequencerError
from resequencer.printable import printable

_MAX_CHARACTERS = 16_384
_TEXT = re.compile(r"\d{1,6}:\d{1,18}(?:,\d{1,6}:\d{1,18})*", re.ASCII)


class NoPlace(ValueError):
    """The text is no place."""


def place_text(place: Place) -> str:
    return ",".join(f"{number}:{offset}" for number, offset in sorted(place.items()))


def place_of(text: str) -> Place:
    """Raises NoPlace: The text was not made by `place_text`."""
    if len(text) > _MAX_CHARACTERS or not _TEXT.fullmatch(text):
        raise NoPlace(text[:100])
    pairs = [each.split(":") for each in text.split(",")]
    place = {int(number): int(offset) for number, offset in pairs}
    if len(place) < len(pairs):
        raise NoPlace(text[:100])
    return place


_log = logging.getLogger("resequencer.console")
MAX_KEPT, MAX_KEPT_BYTES = 10_000, 32 << 20
"""Records kept in memory, of each store. A listener that is further behind is cut off; it resumes by the id of its last event."""
_PORTION_BYTES = 256 << 10
"""What a listener takes at once, or one record that is longer."""
_AT_ONCE = 500
_PAUSE_SECONDS = 0.5
_AGAIN_SECONDS = 2.0
_LOOK_SECONDS = 60.0
"""How often the log is opened again, to find out whether it has more partitions."""
_LINGER_SECONDS = 30.0
"""How long is read on without a listener: one that was cut off, or that loads its page again, comes back soon."""
_STOP_SECONDS = 1.0


class Joined(NamedTuple):
    """Where a listener begins: the next number of what is kept, from which place, and what it has to read before.

    `until` is the place up to which the log has to be read again, None if all is kept that lies behind the listener's place.
    """

    number: int
    at: Place
    until: Place | None


class Portion(NamedTuple):
    """Records that were read again, the place before them and the one behind them, and sentences about what is gone before."""

    records: list[Completed]
    start: Place
    at: Place
    gaps: tuple[str, ...]


class FeedProblem(NamedTuple):
    """Why the completions cannot be read, and since when."""

    text: str
    since: Instant


class Listener:
    """One connection. Its event is set whenever there may be something new."""

    def __init__(self) -> None:
        self.news = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def wake(self) -> None:
        """May be called from any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.news.set)


Describe = Callable[[Completed, bool], msgspec.Struct | None]
"""Returns the data of the event `completed`; None: another program wrote the record. The flag: the listener may see values."""


class StoreFeed:
    """One reader for all listeners. What it has read is kept for a while, with numbers in the order of reading."""

    def __init__(
        self,
        open_log: Callable[[], CompletionsLog],
        clock: Clock,
        describe: Describe,
        max_kept: int = MAX_KEPT,
        max_kept_bytes: int = MAX_KEPT_BYTES,
    ) -> None:
        self.describe = describe
        self._open_log, self._clock, self._max_kept, self._max_kept_bytes = open_log, clock, max_kept, max_kept_bytes
        self._kept_bytes = 0
        self._lock = Lock()
        self._listeners: set[Listener] = set()
        self._kept: deque[Completed] = deque()
        self._first = 0
        self._begin: dict[int, int] = {}
        self._place: dict[int, int] | None = None
        self._again_lock = Lock()
        self._again_log: CompletionsLog | None = None
        self._thread: Thread | None = None
        self._is_wanted = Event()
        self._last_listened_at = float("-inf")
        self.is_ended = False
        self.problem: FeedProblem | None = None
        self.changes = 0
        """Grows with each change of the groups that listeners learn of."""

    def listen(self) -> Listener:
        """Take a listener in; the thread is started for the first one."""
        listener = Listener()
        with self._lock:
            self._listeners.add(listener)
            if self._thread is None and not self.is_ended:
                self._thread = Thread(target=self._run, name="completions", daemon=True)
                self._thread.start()
        return listener

    def leave(self, listener: Listener) -> None:
        with self._lock:
            self._listeners.discard(listener)
        self._is_wanted.set()

    def end(self) -> None:
        """Let all listeners go, and take in no more. May be called from any thread, and more than once."""
        self.is_ended = True
        self._is_wanted.set()
        self._wake()

    def close(self) -> None:
        self.end()
        thread = self._thread
        if thread is not None:
            thread.join(_STOP_SECONDS)

    def note_change(self) -> None:
        """Let listeners know that counts of groups may have changed."""
        self.changes += 1
        self._wake()

    def join(self, after: Place | None) -> Joined | None:
        """Return where a listener begins, without a place at the end. None while it is not known where the log ends."""
        with self._lock:
            if self._place is None:
                return None
            end = self._first + len(self._kept)
            if after is None:
                return Joined(end, dict(self._place), None)
            at = {number: after.get(number, 0) for number in self._place}
            is_kept = all(self._begin[number] <= offset for number, offset in at.items())
            is_ahead = any(offset > self._place[number] for number, offset in at.items())
            if is_kept and not is_ahead:
                return Joined(self._first, at, None)
            return Joined(end, at, dict(self._place))

    def take(self, number: int, limit: int) -> list[Completed] | None:
        """Return what is kept from a number on; None if that is not kept any more."""
        with self._lock:
            if number < self._first:
                return None
            start = number - self._first
            return _portioned(islice(self._kept, start, start + limit))

    def read_again(self, at: Place, until: Place) -> Portion:
        """Read a portion of what lies between two places. It ends where all partitions are at `until`.

        A place beyond the end of the log is of another log, which was deleted: such a listener continues at `until`.

        Raises:
            TransportUnavailable, TransportRefused: The log cannot be read.
        """
        with self._again_lock:
            if self._again_log is None:
                self._again_log = self._open_log()
            try:
                return _portion(self._again_log, at, until)
            except BaseException:
                self._close_again_log()
                raise

    def _run(self) -> None:
        log: CompletionsLog | None = None
        opened_at = 0.0
        while not self._may_stop():
            try:
                if log is None or monotonic() - opened_at > _LOOK_SECONDS:
                    log = self._reopened(log)
                    opened_at = monotonic()
                pause = 0.0 if self._read(log) else _PAUSE_SECONDS
            except ResequencerError as error:
                self._note_problem(printable(str(error)))
                _close(log)
                pause, log = _AGAIN_SECONDS, None
            except Exception:  # noqa: BLE001 - A fault in our code must not end the thread; the log has it.
                _log.exception("the completions could not be read")
                self._note_problem("the console failed; its log says why")
                _close(log)
                pause, log = _AGAIN_SECONDS, None
            if pause:
                self._is_wanted.wait(pause)
                self._is_wanted.clear()
        _close(log)
        with self._again_lock:
            self._close_again_log()

    def _may_stop(self) -> bool:
        """Without listeners nothing is read soon, and what is kept is forgotten: the next one begins at the end of the log."""
        with self._lock:
            if self._listeners:
                self._last_listened_at = monotonic()
            if not self.is_ended and monotonic() - self._last_listened_at < _LINGER_SECONDS:
                return False
            self._thread, self._place, self.problem = None, None, None
            self._first += len(self._kept)
            self._kept.clear()
            self._kept_bytes = 0
            return True

    def _reopened(self, log: CompletionsLog | None) -> CompletionsLog:
        _close(log)
        opened = self._open_log()
        try:
            with self._lock:
                known = self._place
            found = opened.ends() if known is None else opened.begins()
        except BaseException:
            opened.close()
            raise
        with self._lock:
            if self._place is None:
                self._place, self._begin = dict(found), dict(found)
            else:
                self._place = {**found, **self._place}
                self._begin = {**found, **self._begin}
        self._wake()
        return opened

    def _read(self, log: CompletionsLog) -> bool:
        """Keep what is new; return whether there was something."""
        with self._lock:
            assert self._place is not None
            place = dict(self._place)
        records, after = log.read(place, _AT_ONCE)
        with self._lock:
            self._place = {**place, **after}
            self._kept.extend(records)
            self._kept_bytes += sum(map(_size_of, records))
            while len(self._kept) > self._max_kept or self._kept_bytes > self._max_kept_bytes:
                gone = self._kept.popleft()
                self._kept_bytes -= _size_of(gone)
                self._first += 1
                self._begin[gone.partition] = gone.next_offset
        is_mended, self.problem = self.problem is not None, None
        if records or is_mended:
            self._wake()
        return bool(records)

    def _note_problem(self, text: str) -> None:
        since = self._clock.now() if self.problem is None else self.problem.since
        is_new = self.problem is None or self.problem.text != text
        self.problem = FeedProblem(text, since)
        if is_new:
            self._wake()

    def _wake(self) -> None:
        with self._lock:
            listeners = list(self._listeners)
        for each in listeners:
            each.wake()

    def _close_again_log(self) -> None:
        _close(self._again_log)
        self._again_log = None


def _close(log: CompletionsLog | None) -> None:
    if log is not None:
        log.close()


def _portion(log: CompletionsLog, at: Place, until: Place) -> Portion:
    begins, ends = log.begins(), log.ends()
    gaps, start = [], dict(at)
    for number, offset in at.items():
        if offset > max(ends.get(number, 0), until[number]):
            gaps.append(f"partition {number} ends before offset {offset}: it was made again; what came since is not shown")
            start[number] = until[number]
        elif offset < begins.get(number, 0):
            gaps.append(f"partition {number} begins at offset {begins[number]}: what was before is not there any more")
            start[number] = begins[number]
    wanted = {number: offset for number, offset in start.items() if offset < until[number]}
    if not wanted:
        return Portion([], start, start, tuple(gaps))
    records, after = log.read(wanted, _AT_ONCE)
    reached = {number: max(offset, min(after.get(number, offset), until[number])) for number, offset in wanted.items()}
    within = [each for each in records if start[each.partition] <= each.offset < until[each.partition]]
    if len(portion := _portioned(within)) < len(within):
        reached = {each.partition: each.next_offset for each in portion}
    return Portion(portion, start, {**start, **reached}, tuple(gaps))


def _portioned(records: Iterable[Completed]) -> list[Completed]:
    """Return the first records, so many that the next one would make them too long; the first one in any case."""
    portion, size = list[Completed](), 0
    for each in records:
        size += _size_of(each)
        if portion and size > _PORTION_BYTES:
            break
        portion.append(each)
    return portion


def _size_of(record: Completed) -> int:
    return len(record.value) + len(record.key or b"")
