"""Deadlines that know the backlog: none fires before everything that already lay in its partition has been read."""

from collections import deque
from collections.abc import Iterator, Mapping

from domain.record import Partition
from resequencer.messages import UnitKey


class Backlog:
    """Holds due deadlines until their partition has been read up to where its log ended when they came due.

    After ten minutes of outage all deadlines have passed while the missing envelopes wait unread: releasing then would be a
    mass of false `incomplete` (docs/design.md, section 8).
    """

    def __init__(self) -> None:
        self._held: dict[Partition, deque[tuple[int, UnitKey]]] = {}
        self._ends: dict[UnitKey, int] = {}

    def hold(self, key: UnitKey, end: int) -> None:
        """Hold a deadline until its partition was read up to `end`. Ends never go back, so the oldest is always first.

        A unit that came to wait anew meanwhile waits for the newer end.
        """
        self._held.setdefault(key.partition, deque()).append((end, key))
        self._ends[key] = end

    def caught_up(self, read_to: Mapping[Partition, int]) -> Iterator[UnitKey]:
        """The held ones whose backlog has been read; `read_to` is the offset up to which each partition was read."""
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
