"""What is due, what waits for its backlog, and whose turn continues."""

from collections import deque
from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from resequencer.batch import UnitKey
from resequencer.clock import Instant
from resequencer.record import Partition
from resequencer.storage_port import WaitKind, Waits

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


"""So many places more than twice the units may be in the queue of a partition: those that do not count any more."""


class Backlog:
    """Hold due deadlines until their partition has been read up to where its log ended when they came due.

    After an outage of ten minutes all deadlines have passed, but the missing envelopes lie unread. A release at that moment
    would mark many envelopes `incomplete` wrongly (docs/design.md, section 8).
    """

    def __init__(self) -> None:
        self._held: dict[Partition, deque[tuple[int, UnitKey]]] = {}
        self._ends: dict[UnitKey, int] = {}

    def hold(self, key: UnitKey, end: int) -> None:
        """Hold a deadline until its partition was read up to `end`. Ends never decrease, so the oldest is always first.

        If the unit is held again meanwhile, the newer end counts.
        """
        held = self._held.setdefault(key.partition, deque())
        held.append((end, key))
        self._ends[key] = end
        if len(held) > 2 * len(self._ends) + _STALE:
            self._held[key.partition] = deque(dict.fromkeys([each for each in held if self._ends.get(each[1]) == each[0]]))

    def caught_up(self, read_to: Mapping[Partition, int]) -> Iterator[UnitKey]:
        """Yield and remove the units whose backlog has been read. `read_to` is the offset up to which a partition was read."""
        for partition, held in self._held.items():
            offset = read_to.get(partition, -1)
            while held and held[0][0] <= offset:
                end, key = held.popleft()
                if self._ends.get(key) == end:
                    del self._ends[key]
                    yield key

    def drop(self, partition: Partition) -> None:
        for _, key in self._held.pop(partition, ()):
            self._ends.pop(key, None)

    def __len__(self) -> int:
        return len(self._ends)


class UnfinishedTurns:
    """A queue: new units and units that let something out go to its end. `stashed_bytes` is the sum over all units."""

    def __init__(self) -> None:
        self._line: dict[UnitKey, int] = {}
        self.stashed_bytes = 0

    def __len__(self) -> int:
        return len(self._line)

    def note(self, key: UnitKey, waits: Waits | None, *, has_output: bool) -> None:
        """Take over how a unit waits now. A unit that let nothing out keeps its place, even if envelopes arrived for it."""
        is_left_over = waits is not None and waits.kind is WaitKind.REMAINDER
        if has_output or not is_left_over:
            self._remove(key)
        if waits is not None and is_left_over:
            self.stashed_bytes += waits.stashed_bytes - self._line.get(key, 0)
            self._line[key] = waits.stashed_bytes

    def first(self, limit: int, max_bytes: int) -> list[UnitKey]:
        """Return the units with the next turns: at least one, at most `limit`, and none more once they hold `max_bytes`.

        `max_bytes` bounds what is loaded at once.
        """
        found, size = list[UnitKey](), 0
        for key, stashed_bytes in self._line.items():
            if found and (len(found) >= limit or size >= max_bytes):
                break
            found.append(key)
            size += stashed_bytes
        return found

    def drop(self, partition: Partition) -> None:
        for key in [key for key in self._line if key.partition == partition]:
            self._remove(key)

    def _remove(self, key: UnitKey) -> None:
        self.stashed_bytes -= self._line.pop(key, 0)
