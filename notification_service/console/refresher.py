"""A thread that keeps something fresh while people look at it, and spends a bounded part of its time on that."""

import logging
from collections.abc import Callable, Sequence
from threading import Event, Thread
from time import monotonic
from typing import NamedTuple

_log = logging.getLogger("resequencer.console")
_FIRST_WAIT_SECONDS = 1.0
FRESH_MS = 5_000
"""What is older is refreshed for a person who looks, who waits a moment for it."""


class Pace(NamedTuple):
    """How often to refresh for `lasts_seconds` after a look: the shortest pause, and the part of the time that it may take."""

    lasts_seconds: float
    min_pause_seconds: float
    max_part: float

    def pause_after(self, spent_seconds: float) -> float:
        """Return how long to pause, in seconds, after a refresh that took so long."""
        return max(self.min_pause_seconds, spent_seconds * (1 / self.max_part - 1))


class Refresher:
    """Calls `refresh` in a thread, and `close` at its end; without `start`, its owner refreshes.

    `refresh` returns whether the next one should follow after the shortest pause, however long it took. The first of `paces` of
    which there was a look lately holds; without one nothing is refreshed. One that lasts for ever needs no look.
    """

    def __init__(self, name: str, refresh: Callable[[], bool], close: Callable[[], None], paces: Sequence[Pace]) -> None:
        self._name, self._refresh, self._close = name, refresh, close
        self._looks = {each: 0.0 if each.lasts_seconds == float("inf") else float("-inf") for each in paces}
        self._is_wanted, self._is_refreshed = Event(), Event()
        self._thread: Thread | None = None
        self.is_stopping = False

    def start(self) -> None:
        if self._thread is None:
            self._thread = Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop the thread, which ends with the process if a server does not answer it in time."""
        self.is_stopping = True
        self._is_wanted.set()
        if self._thread is None:
            self._close()
        else:
            self._thread.join(_FIRST_WAIT_SECONDS)
            self._thread = None

    def look(self, pace: Pace, *, is_old: bool = False) -> None:
        """Note that a person looks. If what there is to see is old, wait a moment for a refresh."""
        self._looks[pace] = monotonic()
        if is_old and self._thread is not None:
            self._is_refreshed.clear()
            self._is_wanted.set()
            self._is_refreshed.wait(_FIRST_WAIT_SECONDS)
        else:
            self._is_wanted.set()

    def _run(self) -> None:
        spent: float | None = None
        try:
            while self._wait_until_due(spent):
                began, is_soon = monotonic(), False
                try:
                    is_soon = self._refresh()
                except Exception:  # noqa: BLE001 - A fault in our code must not end the thread; the log has it.
                    _log.exception("the %s could not be refreshed", self._name)
                self._is_refreshed.set()
                spent = 0.0 if is_soon else monotonic() - began
        finally:
            self._close()

    def _wait_until_due(self, spent_seconds: float | None) -> bool:
        """Wait until the next refresh is due; return False if there is to be none. A look ends a longer pause."""
        ended = monotonic()
        while not self.is_stopping:
            now = monotonic()
            pace = next((each for each, looked_at in self._looks.items() if now - looked_at < each.lasts_seconds), None)
            if pace is not None and spent_seconds is None:
                return True
            remaining = None if pace is None else ended + pace.pause_after(spent_seconds or 0.0) - now
            if remaining is not None and remaining <= 0:
                return True
            self._is_wanted.wait(remaining)
            self._is_wanted.clear()
        return False
