"""The index: what a new owner must know about the pages without reading them, and which pages may contain a unit. Pure."""

import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias
from zlib import crc32

import msgspec

from storage.infinispan.layout.segment import NEVER, UnitRecord, WaitsRow, undecodable

PAGE_BITS = 34
"""Page numbers are below 2**34. The other 30 bits of an entry are the unit's fingerprint."""

MAX_MERGED = 2**19
"""The most entries of a merged run; such a merge takes about 50 ms."""

Entries: TypeAlias = "array[int]"
"""Sorted entries, each a unit's fingerprint with its page."""

_PAGE = 2**PAGE_BITS - 1
_GROWTH = 4


class _Run(NamedTuple):
    """Entries with pages up to `last_page`."""

    entries: Entries
    last_page: int


class UnitIndex:
    """Sorted runs of entries. A page found for a unit may not contain it, because units may share a fingerprint."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []

    def add(self, entries: Entries, last_page: int) -> None:
        """Add entries. Their pages are greater than all pages before, up to `last_page`."""
        if entries:
            self._runs.append(_Run(entries, last_page))

    def find(self, unit: str, tail: int) -> list[int]:
        """Return the pages from `tail` on that may contain the unit, the newest first."""
        fingerprint = _fingerprint(unit)
        first, end = fingerprint << PAGE_BITS, (fingerprint + 1) << PAGE_BITS
        pages = []
        for entries, _ in self._runs:
            at = bisect_left(entries, first)
            while at < len(entries) and entries[at] < end:
                pages.append(entries[at] & _PAGE)
                at += 1
        return sorted({page for page in pages if page >= tail}, reverse=True) if pages else pages

    def tidy(self, tail: int) -> None:
        """Merge two runs of similar length, without pages below `tail`. So there are never many runs.

        Called with each commit, and does only a little work each time.
        """
        self._runs = [run for run in self._runs if run.last_page >= tail]
        for at in range(len(self._runs) - 1, 0, -1):
            (older, _), (newer, last_page) = self._runs[at - 1 : at + 1]
            if len(older) < _GROWTH * len(newer) and len(older) + len(newer) <= MAX_MERGED:
                entries = array("Q", [each for each in merged(older, newer) if each & _PAGE >= tail])
                self._runs[at - 1 : at + 1] = [_Run(entries, last_page)]
                return


def entries_of(placed: Iterable[tuple[str, int]]) -> Entries:
    """Return the sorted entries of units and their pages."""
    return array("Q", sorted(_fingerprint(unit) << PAGE_BITS | page for unit, page in placed))


def to_bytes(entries: Entries) -> bytes:
    """Encode entries, the least significant byte first on every machine."""
    if sys.byteorder == "big":
        entries = array("Q", entries)
        entries.byteswap()
    return entries.tobytes()


def from_bytes(data: bytes) -> Entries:
    """Decode entries. Raises ValueError if `data` is not a whole number of entries."""
    entries = array("Q")
    entries.frombytes(data)
    if sys.byteorder == "big":
        entries.byteswap()
    return entries


def merged(first: Entries, second: Entries) -> Entries:
    # `sorted` detects the two sorted runs and merges them.
    return array("Q", sorted(first.tolist() + second.tolist()))


def _fingerprint(unit: str) -> int:
    return crc32(unit.encode()) >> (PAGE_BITS - 32)


_SLOT_BITS = 15


class DeadCopy(NamedTuple):
    """A copy of a unit that a later copy has replaced. `waited` is set if something waited in it."""

    page: int
    slot: int
    waited: bool

    def packed(self) -> int:
        return self.page << _SLOT_BITS + 1 | self.slot << 1 | self.waited


class PageRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A page as it was written: the count of units, of waiting units, and the first and last change of its idle units.

    Without idle units both times are `NEVER`.
    """

    units: int
    waiting: int
    earliest: int
    latest: int
    parts: int


class IndexBlock(msgspec.Struct, frozen=True, array_like=True):
    """The results of some compactions. Until the last block is full, each compaction rewrites it, longer and under a new name.

    It describes the pages from `first_page` on. `entries` are the unit index's entries of the units in these pages. `waits` has
    the waiting units in these pages. `woken` has the units that waited in older pages and no longer wait. `dead` has the copies
    that were replaced, in older pages or in these.
    """

    first_page: int
    rows: tuple[PageRow, ...] = ()
    entries: bytes = b""
    waits: tuple[tuple[str, WaitsRow], ...] = ()
    woken: tuple[str, ...] = ()
    dead: tuple[int, ...] = ()

    @property
    def end(self) -> int:
        return self.first_page + len(self.rows)

    @property
    def size(self) -> int:
        """About its size when encoded, in bytes."""
        # A waiting unit takes about 150 bytes, a name 40, a page's row 20 and a dead copy 9.
        lists = 150 * len(self.waits) + 40 * len(self.woken) + 20 * len(self.rows) + 9 * len(self.dead)
        return len(self.entries) + lists

    @property
    def says_nothing(self) -> bool:
        return not (self.rows or self.woken or self.dead)

    def index_entries(self) -> Entries:
        return from_bytes(self.entries)

    def dead_copies(self) -> list[DeadCopy]:
        slots = 2**_SLOT_BITS
        return [DeadCopy(each >> _SLOT_BITS + 1, (each >> 1) % slots, bool(each & 1)) for each in self.dead]

    def followed_by(self, later: "IndexBlock") -> "IndexBlock":
        """Return both blocks as one. `later` begins where this one ends."""
        assert later.first_page == self.end
        woken = set(later.woken)
        waits = {unit: row for unit, row in self.waits if unit not in woken} | dict(later.waits)
        return IndexBlock(
            self.first_page,
            self.rows + later.rows,
            to_bytes(merged(self.index_entries(), later.index_entries())),
            tuple(waits.items()),
            tuple(unit for unit in dict.fromkeys(self.woken + later.woken) if unit not in waits),
            self.dead + later.dead,
        )


def index_block_of(
    first_page: int, pages: Sequence[tuple[Sequence[UnitRecord], int]], woken: Sequence[str], dead: Sequence[DeadCopy]
) -> IndexBlock:
    """Return the block of one compaction. `pages` has the records of each page, and its number of parts."""
    placed = [(record.unit, number) for number, (records, _) in enumerate(pages, first_page) for record in records]
    return IndexBlock(
        first_page,
        tuple(_row(records, parts) for records, parts in pages),
        to_bytes(entries_of(placed)),
        tuple((record.unit, record.waits) for records, _ in pages for record in records if record.waits is not None),
        tuple(woken),
        tuple(copy.packed() for copy in dead),
    )


def _row(records: Sequence[UnitRecord], parts: int) -> PageRow:
    idle = [record.changed_at for record in records if record.waits is None]
    return PageRow(len(records), len(records) - len(idle), min(idle, default=NEVER), max(idle, default=NEVER), parts)


encode_index_block = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(IndexBlock).decode


def decode_index_block(name: str, payload: bytes) -> IndexBlock:
    """Decode an index block. Raises StorageRefused if the payload is not one."""
    try:
        block = _decode(payload)
        block.index_entries()
    except (msgspec.DecodeError, ValueError) as error:
        raise undecodable(name, error) from error
    return block


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
