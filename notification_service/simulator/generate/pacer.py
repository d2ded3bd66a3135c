"""Makes a writer keep to the planned times."""

from collections.abc import Callable

Pause = Callable[[int], None]
"""Waits for so many milliseconds."""

_SHORTEST_MS = 20
"""The shortest pause. The writer flushes before each pause; so some lines are a little late, and flushes are rare."""

_MADE_UP_FOR_MS = 1_000


class Pacer:
    """Waits until a line is due, and counts lines. `now` is in milliseconds and never goes back.

    A delay of up to a second is made up for. After a longer one (the machine slept) all later lines are due that much later.
    """

    def __init__(self, now: Callable[[], int], pause: Pause) -> None:
        self._now = now
        self._pause = pause
        self._began_ms: int | None = None
        self._first_ms = self._last_ms = 0
        self.lines = 0

    @property
    def rate(self) -> float:
        """Lines per second so far, silences included; 0 before the second line."""
        taken_ms = self._last_ms - self._first_ms
        return (self.lines - 1) * 1_000 / taken_ms if taken_ms else 0.0

    def await_line(self, due_ms: int, flush: Callable[[], None]) -> None:
        """Wait until the line is due; call `flush` before any wait."""
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
