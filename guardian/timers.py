"""The timers of a worker's units: one heap for deadlines, retries and the ends of holds."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from resequencer.clock import Instant

K = TypeVar("K")

_STALE = 1_000
"""So many entries more than twice the keys may be in the heap: those of old instants, which are removed all at once."""


class Timers(Generic[K]):
    """One instant per key.

    A timer that moves later costs nothing until its old instant. A timer that moves earlier adds a heap entry; the old entry is
    removed at its own instant, or with others when there are too many.
    """

    def __init__(self) -> None:
        self._wakes_at: dict[K, Instant] = {}
        self._queued_at: dict[K, Instant] = {}
        self._heap: list[tuple[Instant, int, K]] = []
        self._tie = 0

    def arm(self, key: K, wakes_at: Instant) -> None:
        """Wake this key at `wakes_at` instead of the instant armed before."""
        self._wakes_at[key] = wakes_at
        queued_at = self._queued_at.get(key)
        if queued_at is None or wakes_at < queued_at:
            self._push(key, wakes_at)

    def disarm(self, key: K) -> None:
        self._wakes_at.pop(key, None)

    def due(self, now: Instant) -> Iterator[K]:
        """Yield and disarm the keys whose instant has come, earliest first."""
        while self._heap and self._heap[0][0] <= now:
            queued_at, _, key = heappop(self._heap)
            if self._queued_at.get(key) != queued_at:
                continue
            del self._queued_at[key]
            wakes_at = self._wakes_at.get(key)
            if wakes_at is None:
                continue
            if wakes_at > queued_at:
                self._push(key, wakes_at)
                continue
            del self._wakes_at[key]
            yield key

    def next_at(self) -> Instant | None:
        """An instant before which no key is due; the next key may be due later. None if no timer is queued."""
        return self._heap[0][0] if self._heap else None

    def __len__(self) -> int:
        return len(self._wakes_at)

    def _push(self, key: K, at: Instant) -> None:
        self._tie += 1
        self._queued_at[key] = at
        heappush(self._heap, (at, self._tie, key))
        if len(self._heap) > 2 * len(self._wakes_at) + _STALE:
            self._queued_at = {key: at for key, at in self._queued_at.items() if key in self._wakes_at}
            self._heap = [(at, tie, key) for tie, (key, at) in enumerate(self._queued_at.items())]
            heapify(self._heap)
