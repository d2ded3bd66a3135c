"""How far a partition is settled, so that it can be acknowledged: promise 1 of docs/design.md, section 2.

Records are settled out of order. An offset is acknowledged only if no unsettled offset lies before it. The offsets that are
*not* settled are kept, as ranges of consecutive offsets. Settled offsets need no memory, however many lie behind the head.

With storage `none` a position waits for the oldest record that is not done and for the first record of each active unit. Many
records behind it are done. The position's metadata lists them; Kafka takes 4 096 characters of metadata. Offsets that are not
done are written with a bit per offset while they lie close together, then as ranges. Any pattern of 22 000 offsets fits.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import NamedTuple

import msgspec

from resequencer.clock import Instant


class Head(NamedTuple):
    """The oldest unsettled offset, which holds the position back, and since when it has been the oldest."""

    offset: int
    since: Instant


class Positions:
    """The position of one partition. Offsets are delivered in ascending order; offsets between them belong to no record.

    A new instance is made after each `seek`. Call `note_acknowledged` after each acknowledgement. `due` says whether it is time
    for the next one.
    """

    def __init__(self, next_offset: int) -> None:
        assert next_offset >= 0
        self._next_offset = next_offset
        # Ascending by offset, because names are added in the order in which their records were read.
        self._pinned: dict[str, int] = {}
        # Two parallel lists: the first and the last offset of each unsettled range, ascending.
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._head_since: Instant = 0
        self._last_acknowledged = next_offset
        self._acknowledged_at: Instant | None = None

    @property
    def acknowledged(self) -> int:
        """The next offset to read after a restart: everything delivered before it is settled, and no pin lies before it."""
        settled = self._firsts[0] if self._firsts else self._next_offset
        return min(settled, next(iter(self._pinned.values()), settled))

    @property
    def next_offset(self) -> int:
        """The offset behind everything that was noted."""
        return self._next_offset

    @property
    def last_acknowledged(self) -> int:
        """The position that was last published to the source."""
        return self._last_acknowledged

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
        """Note a poll: reading continues at `next_offset`; of the records before it `offsets` (ascending) are not settled yet.

        `next_offset` may be greater than the last record's offset plus one: the source knows what it skipped (the length of a
        line, a control record), even if it delivered nothing.
        """
        if offsets and not self._firsts:
            self._head_since = now
        for offset in offsets:
            self._deliver(offset)
        assert next_offset >= self._next_offset, "reading goes forward; after a seek, new positions are made"
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
        return self.acknowledged != self._last_acknowledged

    def due(self, now: Instant, throttle_ms: int) -> bool:
        """Whether to acknowledge now: the position has moved, and the last acknowledgement was at least `throttle_ms` ago.

        A clock that was set back does not delay it.
        """
        if not self.has_moved():
            return False
        return self._acknowledged_at is None or not 0 <= now - self._acknowledged_at < throttle_ms

    def take_over(self, position: int) -> None:
        """Note the position that the source has: the last owner may have died before it acknowledged what it had settled."""
        self._last_acknowledged = min(position, self._next_offset)

    def note_acknowledged(self, position: int, now: Instant) -> None:
        """Note that `position` was published. It is the value of `acknowledged` at that time, which may have moved meanwhile."""
        assert position <= self.acknowledged, "a position beyond what is settled loses records"
        self._last_acknowledged = position
        self._acknowledged_at = now

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


MAX_CHARACTERS = 3_800
"""The longest encoding: Kafka's 4 096 characters, less those of the other metadata of a position."""

CHARACTERS_PER_RECORD = 8
"""The most characters that one more record adds: a range of its own, up to 2**30 offsets behind the last one."""

_DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_VALUES = {digit: value for value, digit in enumerate(_DIGITS)}
_MORE = 32
_start = attrgetter("start")


class DoneOffsets(msgspec.Struct, frozen=True):
    """All offsets below `end` are done except `undone`: ascending ranges that do not touch, none of them empty.

    Belongs to a position. Everything below the position is done.
    """

    end: int
    undone: tuple[range, ...] = ()

    def is_done(self, offset: int) -> bool:
        at = bisect_right(self.undone, offset, key=_start) - 1
        return offset < self.end and (at < 0 or offset >= self.undone[at].stop)

    def undone_before(self, offset: int) -> tuple[range, ...]:
        """All offsets below `offset` that are not done."""
        return _joined(_common((*self.undone, range(self.end, max(self.end, offset))), (range(offset),)))

    def advanced(self, read_to: int, unsettled: Iterable[range]) -> "DoneOffsets":
        """Return the done offsets after reading to `read_to`, with `unsettled` not settled. A done offset stays done."""
        news = _common((*self.undone, range(self.end, max(self.end, read_to))), tuple(unsettled))
        unread = _common(self.undone, (range(read_to, self.end),))
        return DoneOffsets(max(self.end, read_to), _joined((*news, *unread)))


def encode(position: int, done: DoneOffsets) -> str:
    """Return `done` as text; empty if nothing beyond the position is done. `undone` begins at the position or later.

    The text has the distance to the end, the count of digits, the digits with six bits each (1 is not done), and the ranges
    behind these bits. Each range is its distance from the one before, and how many offsets more than one it has.
    """
    undone = done.undone
    if done.end <= position or (undone and undone[0].start <= position and undone[0].stop >= done.end):
        return ""
    count = _cheapest(position, undone)
    digits = _digits(position, undone[:count])
    ranges = "".join(map(_number, _steps(position + 6 * len(digits), undone[count:])))
    return _number(done.end - position) + _number(len(digits)) + "".join(digits) + ranges


def longest(position: int, done: DoneOffsets) -> int:
    """The most characters that `encode` takes while more offsets get done, in any order, and the position moves on.

    If every other offset of a range gets done, the range splits into many: about a character for each of its offsets, or a bit.
    """
    if done.end <= position:
        return 0
    bits = [0, *(_digits_to(position, each.stop) for each in done.undone)]
    lasts = [position, *(each.stop for each in done.undone)]
    sizes = [_max_characters(each.start - last, len(each)) for last, each in zip(lasts, done.undone, strict=False)]
    rests = [0, *accumulate(reversed(sizes))]
    numbers = _size(done.end - position) + _size(_digits_to(position, done.end))
    return numbers + min(digits + rest for digits, rest in zip(bits, reversed(rests), strict=True))


def decode(position: int, text: str) -> DoneOffsets | None:
    """Decode what `encode` wrote with this position; None for any other text."""
    try:
        digits = iter([_VALUES[digit] for digit in text])
        numbers = _numbers(digits)
        end, count = position + next(numbers), next(numbers)
        bits = [next(digits) for _ in range(min(count, len(text) + 1))]
        close = [position + 6 * at + bit for at, value in enumerate(bits) for bit in range(6) if value >> bit & 1]
        undone = _joined([*(range(each, each + 1) for each in close), *_ranges(position + 6 * count, list(numbers))])
    except (KeyError, ValueError, StopIteration, RuntimeError):
        return None
    done = DoneOffsets(end, undone)
    # `encode` has exactly one text for each value. Any other text was not written by it.
    is_ours = end < 2**63 and (not undone or undone[-1].stop <= end) and encode(position, done) == text
    return done if is_ours else None


def _cheapest(position: int, undone: Sequence[range]) -> int:
    """Return how many ranges to write as bits so that the text is shortest."""
    bounds = [position, *(position + 6 * _digits_to(position, each.stop) for each in undone)]
    starts = [*(each.start for each in undone), None]
    sizes = [
        _size(each.start - last) + _size(len(each) - 1)
        for last, each in zip([position, *(r.stop for r in undone)], undone, strict=False)
    ]
    before = [0, *accumulate(sizes)]
    costs = {}
    for count, (bound, start) in enumerate(zip(bounds, starts, strict=True)):
        if start is None or start >= bound:
            costs[count] = (bound - position) // 6 + before[-1] - before[count]
    return min(costs, key=lambda count: costs[count])


def _max_characters(distance: int, length: int) -> int:
    """The most characters of one range, whatever is cut out of it, including what the cut adds to the next range's distance."""
    return _size(distance) + (1 if length == 1 else _size(length) + length + length % 2)


def _digits_to(position: int, stop: int) -> int:
    return -(-(stop - position) // 6)


def _digits(position: int, undone: Sequence[range]) -> list[str]:
    digits = [0] * (_digits_to(position, undone[-1].stop) if undone else 0)
    for each in undone:
        for offset in each:
            at, bit = divmod(offset - position, 6)
            digits[at] |= 1 << bit
    return [_DIGITS[digit] for digit in digits]


def _steps(last: int, undone: Sequence[range]) -> Iterator[int]:
    for each in undone:
        yield each.start - last
        yield len(each) - 1
        last = each.stop


def _ranges(last: int, steps: Sequence[int]) -> Iterator[range]:
    for distance, more in zip(steps[::2], steps[1::2], strict=True):
        yield range(last + distance, last + distance + more + 1)
        last += distance + more + 1


# A number has five bits in a digit, the lowest first. A digit of 32 or more is not the last.


def _number(value: int) -> str:
    text = ""
    while value >= _MORE:
        text += _DIGITS[_MORE | value % _MORE]
        value //= _MORE
    return text + _DIGITS[value]


def _size(value: int) -> int:
    """How many digits the number takes."""
    return max(1, -(-value.bit_length() // 5))


def _numbers(digits: Iterator[int]) -> Iterator[int]:
    value = shift = 0
    for digit in digits:
        value |= digit % _MORE << shift
        shift += 5
        if digit < _MORE:
            yield value
            value = shift = 0
    if shift:
        raise ValueError("it ends in the middle of a number")


# Sequences of ascending, disjoint ranges serve as sets of offsets.


def _common(these: Sequence[range], those: Sequence[range]) -> list[range]:
    common, at = [], 0
    for this in these:
        while at < len(those) and those[at].stop <= this.start:
            at += 1
        following = at
        while following < len(those) and those[following].start < this.stop:
            that = those[following]
            common.append(range(max(this.start, that.start), min(this.stop, that.stop)))
            following += 1
    return common


def _joined(ranges: Iterable[range]) -> tuple[range, ...]:
    joined: list[range] = []
    for each in ranges:
        if not each:
            continue
        if joined and joined[-1].stop == each.start:
            joined[-1] = range(joined[-1].start, each.stop)
        else:
            joined.append(each)
    return tuple(joined)
