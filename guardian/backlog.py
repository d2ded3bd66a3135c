"""Deadlines that wait for their backlog: none fires before the records that its partition already held have been read."""

from collections import deque
from collections.abc import Iterator, Mapping

from resequencer.batch import UnitKey
from resequencer.record import Partition

_STALE = 1_000
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
