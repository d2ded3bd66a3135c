"""What a view keeps of an index block to find units in its pages: eight bytes per unit and per dead copy. Pure."""

from array import array
from bisect import bisect_left
from typing import NamedTuple

from storage.infinispan.layout.index_block import DeadCopy, IndexBlock
from storage.infinispan.layout.unit_index import Entries


class BlockLookup(NamedTuple):
    """`entries` are the unit index's entries of pages before `end`. `dead` has the packed dead copies in ascending order."""

    entries: Entries
    dead: "array[int]"
    end: int

    def has_dead(self, page: int, slot: int) -> bool:
        """Whether the block says of this copy that a later one has replaced it."""
        at = bisect_left(self.dead, DeadCopy(page, slot, waited=False).packed())
        return at < len(self.dead) and self.dead[at] <= DeadCopy(page, slot, waited=True).packed()


def lookup_of(block: IndexBlock) -> BlockLookup:
    return BlockLookup(block.index_entries(), array("Q", sorted(block.dead)), block.end)
