"""Decides when a worker that ended is started again, and when it is not. Pure: instants are handed in."""

from collections import deque
from collections.abc import Iterable

from resequencer.clock import Instant

MAX_EXITS = 10
WITHIN_MS = 60_000


class RestartPolicy:
    """The pause before a restart doubles while exits follow each other; after too many within a minute, no restart follows.

    It is `first_pause_ms` at first, and ten times as much at most.
    """

    def __init__(self, first_pause_ms: int) -> None:
        self._first_pause_ms = first_pause_ms
        self._exits: deque[Instant] = deque(maxlen=MAX_EXITS)
        self._explained: deque[Instant] = deque(maxlen=MAX_EXITS)

    def note_exit(self, now: Instant) -> int | None:
        """Return the milliseconds to wait before the next start; None if no start follows."""
        self._exits.append(now)
        return None if _recent(self._exits, now) >= MAX_EXITS else self._pause_ms(now)

    def note_explained(self, now: Instant) -> int:
        """Return the milliseconds to wait after an exit that an envelope is counted for, or that was ordered.

        It lengthens the pause and ends no slot.
        """
        self._explained.append(now)
        return self._pause_ms(now)

    def _pause_ms(self, now: Instant) -> int:
        recent = _recent(self._exits, now) + _recent(self._explained, now)
        return min(self._first_pause_ms << (max(recent, 1) - 1), 10 * self._first_pause_ms)


def _recent(exits: Iterable[Instant], now: Instant) -> int:
    return sum(0 <= now - ended_at < WITHIN_MS for ended_at in exits)
