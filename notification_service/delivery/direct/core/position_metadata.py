"""What the position of a partition carries beside its offset, and how much may be read until it can list no more of what is
done beyond it. Pure."""

import re
from collections.abc import Callable

import msgspec

from guardian.positions import CHARACTERS_PER_RECORD, MAX_CHARACTERS, DoneOffsets, decode, encode, longest

_FORM = re.compile(r"direct/1 (-|s) (0|[1-9][0-9]{0,18}) ([A-Za-z0-9_-]*)", re.ASCII)


class PositionMetadata(msgspec.Struct, frozen=True):
    """`done` are the offsets beyond the position that are done. `skips_all` is what an operator has ordered for the partition.

    `orders_read_to` is the offset up to which the partition's orders were executed.
    """

    done: DoneOffsets
    skips_all: bool = False
    orders_read_to: int = 0

    def encode(self, position: int) -> str:
        """Return the text for the metadata of the position."""
        return f"direct/1 {'s' if self.skips_all else '-'} {self.orders_read_to} {encode(position, self.done)}"


def find_metadata(position: int, text: str) -> PositionMetadata | None:
    """Return what `encode` wrote with this position; None for any other text."""
    found = _FORM.fullmatch(text)
    if found is None:
        return None
    done = decode(position, found[3]) if found[3] else DoneOffsets(position)
    return None if done is None else PositionMetadata(done, found[1] == "s", int(found[2]))


_NUMBERS = 32
"""More characters than the numbers take that are written before the bits."""

_SHORT = 2_400
"""So many offsets take 400 characters at most, a bit for each, whatever is done of them: they need not be measured."""

MIN_READABLE = 50
"""A partition of which fewer records may be read is paused, unless they are read for the second time."""


def max_readable(position: int, end: int, find_done: Callable[[], DoneOffsets]) -> int:
    """Return how many records may be read, whatever lies between them and in whichever order they will be done.

    `end` is the offset up to which the position lists what is done; `find_done` returns that list. A record may add a range of
    its own, for offsets may have gaps: those of transactions, and of what was compacted.
    """
    taken = (end - position) // 6 + _NUMBERS if end - position <= _SHORT else longest(position, find_done())
    return (MAX_CHARACTERS - taken) // CHARACTERS_PER_RECORD - 1


def fitted(position: int, done: DoneOffsets) -> DoneOffsets:
    """Return as much of `done` as fits into the metadata, from the position on. The remainder will be delivered again."""
    if len(encode(position, done)) <= MAX_CHARACTERS:
        return done
    fits, too_many = 0, len(done.undone)
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if len(encode(position, _first(done, middle))) <= MAX_CHARACTERS:
            fits = middle
        else:
            too_many = middle
    return _first(done, fits)


def _first(done: DoneOffsets, count: int) -> DoneOffsets:
    """Return the list as it was before the range of this number."""
    return DoneOffsets(done.undone[count].start, done.undone[:count])
