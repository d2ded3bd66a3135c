"""When a worker that died is started again, and when no more. Pure: instants are handed in."""

from collections import deque
from collections.abc import Iterable

from domain.clock import Instant

FIRST_PAUSE_MS = 200
LONGEST_PAUSE_MS = 2_000
MOST_DEATHS = 10
WITHIN_MS = 60_000


class RestartPolicy:
    """The pause before a restart doubles while deaths follow each other; after too many within a minute there is none."""

    def __init__(self) -> None:
        self._deaths: deque[Instant] = deque(maxlen=MOST_DEATHS)
        self._explained: deque[Instant] = deque(maxlen=MOST_DEATHS)

    def note_death(self, now: Instant) -> int | None:
        """Milliseconds to wait before the next start; None if it is to end instead."""
        self._deaths.append(now)
        return None if _recent(self._deaths, now) >= MOST_DEATHS else self._pause_ms(now)

    def note_explained(self, now: Instant) -> int:
        """The same of a death that an envelope is counted for: it makes the pause longer, and ends nothing."""
        self._explained.append(now)
        return self._pause_ms(now)

    def _pause_ms(self, now: Instant) -> int:
        recent = _recent(self._deaths, now) + _recent(self._explained, now)
        return min(FIRST_PAUSE_MS << (max(recent, 1) - 1), LONGEST_PAUSE_MS)


def _recent(deaths: Iterable[Instant], now: Instant) -> int:
    return sum(0 <= now - death < WITHIN_MS for death in deaths)
