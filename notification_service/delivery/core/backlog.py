"""What waits for a receiver: how much, since when, and when it will be delivered. Pure."""

from collections import deque
from collections.abc import Iterable

import msgspec

SEEN_MS = 120_000
"""The rate of a backlog is that of this time."""

MIN_SEEN_MS = 10_000
"""A backlog that was seen for a shorter time has no rate yet."""


class Backlog(msgspec.Struct, frozen=True, omit_defaults=True):
    """`count` rows of the ledger, or offsets of topics, are not delivered.

    The oldest of them has waited since `oldest_at` (ISO 8601, UTC); None: nothing waits, or it is not known. `per_second` is by
    how much the count grows, and is below 0 while it falls; None: it was not seen for long enough. At this rate all is delivered
    in `done_in_ms`; None: that is not known, because the count does not fall.
    """

    count: int
    oldest_at: str | None = None
    per_second: float | None = None
    done_in_ms: int | None = None


def make_backlog(count: int, oldest_at: str | None, per_second: float | None) -> Backlog:
    """Return the backlog with its estimate."""
    rate = None if per_second is None else round(per_second, 3)
    done_in_ms = 0 if not count else round(count / -rate * 1_000) if rate is not None and rate < 0 else None
    return Backlog(count, oldest_at, rate, done_in_ms)


def merged(backlogs: Iterable[Backlog | None]) -> Backlog | None:
    """Return the backlog of all parts; None if none is known. Without the rate of one part the rate is not known."""
    found = [each for each in backlogs if each is not None]
    if not found:
        return None
    rates = [each.per_second for each in found if each.per_second is not None]
    oldest_at = min((each.oldest_at for each in found if each.oldest_at is not None), default=None)
    return make_backlog(sum(each.count for each in found), oldest_at, sum(rates) if len(rates) == len(found) else None)


class BacklogTrend:
    """How fast a backlog grows or falls. Instants are in ms of a clock that never goes back."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, int]] = deque()

    def see(self, count: int, now: int) -> float | None:
        """Note the count; return by how much it grows in a second, None if it was not seen for long enough."""
        self._seen.append((now, count))
        while now - self._seen[0][0] > SEEN_MS:
            self._seen.popleft()
        first_at, first = self._seen[0]
        return None if now - first_at < MIN_SEEN_MS else (count - first) * 1_000 / (now - first_at)
