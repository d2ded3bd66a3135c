"""What the position of a partition carries beside its offset. Pure."""

import re

import msgspec

from guardian.positions import DoneOffsets, decode, encode

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
