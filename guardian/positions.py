"""How far a partition is settled, so that it can be acknowledged: promise 1 of docs/design.md, section 2.

Records are settled out of order; acknowledged is only what has nothing unsettled before it. Kept is what is *not* settled,
as ranges of consecutive offsets. What was settled costs nothing, however much of it lies behind a head that never ends.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from domain.clock import Instant


class Head(NamedTuple):
    """The oldest unsettled offset, and since when it has been the oldest: how long it has held the position back."""

    offset: int
    since: Instant


class Positions:
    """One partition's. Offsets ascend as they are delivered; the numbers between two of them mean nothing.

    Made anew whenever reading begins elsewhere (`seek`). An acknowledgement says `told` afterwards, for `due` asks whether
    it is time for the next: when the position moved, but no more often than every `throttle_ms`.
    """

    def __init__(self, next_offset: int, throttle_ms: int) -> None:
        assert next_offset >= 0
        assert throttle_ms >= 0
        self._next_offset = next_offset
        self._throttle_ms = throttle_ms
        # Ascending by offset, for names are kept in the order in which they were read.
        self._pinned: dict[str, int] = {}
        # Two lists side by side: the first and the last offset of each unsettled range, ascending.
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._head_since: Instant = 0
        self._told = next_offset
        self._told_at: Instant | None = None

    @property
    def acknowledged(self) -> int:
        """The next offset to read after a restart: everything that was delivered before it is settled, and nobody holds it."""
        settled = self._firsts[0] if self._firsts else self._next_offset
        return min(settled, next(iter(self._pinned.values()), settled))

    @property
    def last_told(self) -> int:
        """The position that the source knows."""
        return self._told

    @property
    def head(self) -> Head | None:
        """What holds the position back, None if everything is settled."""
        return Head(self._firsts[0], self._head_since) if self._firsts else None

    @property
    def unsettled(self) -> tuple[range, ...]:
        """What was delivered and is not settled, ascending. As many ranges as there are gaps, of numbers or of settling."""
        return tuple(range(first, last + 1) for first, last in zip(self._firsts, self._lasts, strict=True))

    def read(self, offsets: Sequence[int], next_offset: int, now: Instant) -> None:
        """Reading goes on at `next_offset`; of what was delivered before it these, ascending, are not settled yet.

        It may lie further on than the last record's offset plus one: the source knows what it stepped over (a line's length,
        a control record), also where it delivered nothing.
        """
        if offsets and not self._firsts:
            self._head_since = now
        for offset in offsets:
            self._deliver(offset)
        assert next_offset >= self._next_offset, "reading goes forward; after a seek, positions are made anew"
        self._next_offset = next_offset

    def settle(self, offset: int, now: Instant) -> None:
        """This one's fate is durable. Settling it again has no effect."""
        assert offset < self._next_offset, "only what was delivered can be settled"
        at = bisect_right(self._firsts, offset) - 1
        if at < 0 or offset > self._lasts[at]:
            return
        if offset == self._firsts[0]:
            self._head_since = now
        self._cut(at, offset)

    def pin(self, name: str, offset: int) -> None:
        """The position waits at this offset, settled or not, until `name` is unpinned. Of a name the first offset counts."""
        self._pinned.setdefault(name, offset)

    def unpin(self, name: str) -> None:
        """Nothing waits for its sake any more; of a name that is not kept it has no effect."""
        self._pinned.pop(name, None)

    def has_moved(self) -> bool:
        """Whether there is something to acknowledge. The one question on the way down, where no throttle counts."""
        return self.acknowledged != self._told

    def due(self, now: Instant) -> bool:
        """Whether to acknowledge now. A clock that was set back does not silence it."""
        if not self.has_moved():
            return False
        return self._told_at is None or not 0 <= now - self._told_at < self._throttle_ms

    def told(self, position: int, now: Instant) -> None:
        """The source knows this position: what `acknowledged` was when it was sent, for it may have moved meanwhile."""
        assert position <= self.acknowledged, "a position beyond what is settled loses records"
        self._told = position
        self._told_at = now

    def _deliver(self, offset: int) -> None:
        assert offset >= self._next_offset, "offsets are delivered ascending, each once"
        if self._lasts and self._lasts[-1] == offset - 1:
            self._lasts[-1] = offset
        else:
            self._firsts.append(offset)
            self._lasts.append(offset)
        self._next_offset = offset + 1

    def _cut(self, at: int, offset: int) -> None:
        """Take one offset out of the range that holds it."""
        first, last = self._firsts[at], self._lasts[at]
        if first == last:
            del self._firsts[at], self._lasts[at]
        elif offset == first:
            self._firsts[at] = offset + 1
        elif offset == last:
            self._lasts[at] = offset - 1
        else:
            self._lasts[at] = offset - 1
            self._firsts.insert(at + 1, offset + 1)
            self._lasts.insert(at + 1, last)
