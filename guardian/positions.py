"""How far a partition is settled, so that it can be acknowledged: promise 1 of docs/design.md, section 2.

Records are settled out of order. An offset is acknowledged only if no unsettled offset lies before it. The offsets that are
*not* settled are kept, as ranges of consecutive offsets. Settled offsets need no memory, however many lie behind the head.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from resequencer.clock import Instant


class Head(NamedTuple):
    """The oldest unsettled offset, which holds the position back, and since when it has been the oldest."""

    offset: int
    since: Instant


class Positions:
    """The position of one partition. Offsets are delivered in ascending order; offsets between them belong to no record.

    A new instance is made after each `seek`. Call `told` after each acknowledgement. `due` tells whether it is time for the
    next one: the position has moved, and the last one was at least `throttle_ms` ago.
    """

    def __init__(self, next_offset: int, throttle_ms: int) -> None:
        assert next_offset >= 0
        assert throttle_ms >= 0
        self._next_offset = next_offset
        self._throttle_ms = throttle_ms
        # Ascending by offset, because names are added in the order in which their records were read.
        self._pinned: dict[str, int] = {}
        # Two parallel lists: the first and the last offset of each unsettled range, ascending.
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._head_since: Instant = 0
        self._told = next_offset
        self._told_at: Instant | None = None

    @property
    def acknowledged(self) -> int:
        """The next offset to read after a restart: everything delivered before it is settled, and no pin lies before it."""
        settled = self._firsts[0] if self._firsts else self._next_offset
        return min(settled, next(iter(self._pinned.values()), settled))

    @property
    def last_told(self) -> int:
        """The position that was last published to the source."""
        return self._told

    @property
    def head(self) -> Head | None:
        """The unsettled record that holds the position back, None if everything is settled."""
        return Head(self._firsts[0], self._head_since) if self._firsts else None

    @property
    def first_pinned(self) -> str | None:
        """The name of the pin that holds the position back, None if there is no pin."""
        return next(iter(self._pinned), None)

    @property
    def unsettled(self) -> tuple[range, ...]:
        """The delivered offsets that are not settled, as ascending ranges. A gap in the offsets begins a new range."""
        return tuple(range(first, last + 1) for first, last in zip(self._firsts, self._lasts, strict=True))

    def read(self, offsets: Sequence[int], next_offset: int, now: Instant) -> None:
        """Note a poll: reading goes on at `next_offset`, and of the records before it `offsets` (ascending) are not settled yet.

        `next_offset` may be greater than the last record's offset plus one: the source knows what it skipped (the length of a
        line, a control record), even if it delivered nothing.
        """
        if offsets and not self._firsts:
            self._head_since = now
        for offset in offsets:
            self._deliver(offset)
        assert next_offset >= self._next_offset, "reading goes forward; after a seek, positions are made anew"
        self._next_offset = next_offset

    def settle(self, offset: int, now: Instant) -> None:
        """Note that the fate of the record at `offset` is durable. Idempotent."""
        assert offset < self._next_offset, "only what was delivered can be settled"
        at = bisect_right(self._firsts, offset) - 1
        if at < 0 or offset > self._lasts[at]:
            return
        if offset == self._firsts[0]:
            self._head_since = now
        self._cut(at, offset)

    def pin(self, name: str, offset: int) -> None:
        """Keep the position at this offset, settled or not, until `name` is unpinned. A later `pin` of the name has no effect."""
        self._pinned.setdefault(name, offset)

    def unpin(self, name: str) -> None:
        """Remove a pin. An unknown name has no effect."""
        self._pinned.pop(name, None)

    def has_moved(self) -> bool:
        """Whether there is something to acknowledge. A shutdown asks only this, because the throttle does not count then."""
        return self.acknowledged != self._told

    def due(self, now: Instant) -> bool:
        """Whether to acknowledge now. A clock that was set back does not delay it."""
        if not self.has_moved():
            return False
        return self._told_at is None or not 0 <= now - self._told_at < self._throttle_ms

    def take_over(self, position: int) -> None:
        """Note the position that the source has: the last owner may have died before it acknowledged what it had settled."""
        self._told = min(position, self._next_offset)

    def told(self, position: int, now: Instant) -> None:
        """Note that `position` was published. It is the value of `acknowledged` at that time, which may have moved meanwhile."""
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
        """Remove one offset from its range."""
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
