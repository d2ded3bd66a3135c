"""Holds a writer to the time that was planned."""

from collections.abc import Callable

Pause = Callable[[int], None]
"""Lets so many milliseconds pass."""

_SHORTEST_MS = 20
"""No pause is shorter, and before each the writer flushes: some lines are a little late, and the disk is left in peace."""

_MADE_UP_FOR_MS = 1_000


class Pacer:
    """Waits until a line is due, and counts. `now` is in milliseconds and never goes back.

    A delay of up to a second is made up for; after a longer one (the machine slept) everything is due so much later.
    """

    def __init__(self, now: Callable[[], int], pause: Pause) -> None:
        self._now = now
        self._pause = pause
        self._began_ms: int | None = None
        self._first_ms = self._last_ms = 0
        self.lines = 0

    @property
    def rate(self) -> float:
        """Lines per second so far, silences included; 0 before there is anything to tell."""
        taken_ms = self._last_ms - self._first_ms
        return (self.lines - 1) * 1_000 / taken_ms if taken_ms else 0.0

    def await_line(self, due_ms: int, flush: Callable[[], None]) -> None:
        """Return when the line is due; `flush` is called before anything is waited for."""
        now = self._now()
        if self._began_ms is None:
            self._first_ms = self._began_ms = now
        ahead_ms = self._began_ms + due_ms - now
        if ahead_ms > 0:
            flush()
            self._pause(max(ahead_ms, _SHORTEST_MS))
            now = self._now()
        elif ahead_ms < -_MADE_UP_FOR_MS:
            self._began_ms = now - due_ms
        self._last_ms = now
        self.lines += 1
