"""The page table: what an owner knows about the pages without reading them. Pure."""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from storage.infinispan.layout.index import IndexBlock, PageRow, UnitIndex
from storage.infinispan.layout.segment import NEVER, IndexBlockRow, SegmentManifest, UnitRecord, undecodable


class _PageState:
    """`waiting` counts the live copies of units that waited when the page was written. `dead` has the slots of dead copies."""

    __slots__ = ("dead", "row", "waiting")

    def __init__(self, row: PageRow) -> None:
        self.row = row
        self.waiting = row.waiting
        self.dead: set[int] = set()


class _IndexBlockState(NamedTuple):
    row: IndexBlockRow
    end: int


class OpenIndexBlock(NamedTuple):
    """A block that can be extended. `row` is its present name and size."""

    row: IndexBlockRow
    block: IndexBlock


class PageTable:
    """The pages from `tail` up to `head`, in the order of their writing. They are dropped in the same order.

    So a copy of a unit is dropped before any later copy, and a block's data about older pages is needed no longer than the block.
    """

    def __init__(self, manifest: SegmentManifest) -> None:
        self.tail = self.head = manifest.tail
        self._origins = manifest.origins
        self._units = 0
        self._dead = 0
        self._pins: set[int] = set()
        self._last_block: IndexBlock | None = None
        self._leaves: deque[_IndexBlockState] = deque()
        self._pages: dict[int, _PageState] = {}
        self._unit_index = UnitIndex()

    def find(self, unit: str) -> list[int]:
        """Return the pages that may contain the unit, the newest first. Possibly none of them contains it."""
        return self._unit_index.find(unit, self.tail)

    def row(self, page: int) -> PageRow:
        return self._pages[page].row

    def is_dead(self, page: int, slot: int) -> bool:
        return slot in self._pages[page].dead

    def is_empty(self, page: int) -> bool:
        """Whether the page has no live copy."""
        return len(self._pages[page].dead) == self._pages[page].row.units

    def is_mostly_dead(self, few: int) -> bool:
        """Whether more than half of all copies are dead, and there are more than `few` copies."""
        return self._units > few and self._dead * 2 > self._units

    def is_old(self, page: int, until: int) -> bool:
        """Whether no idle unit in the page changed after `until`, as of the writing of the page."""
        return self._pages[page].row.latest <= until

    def has_any_since(self, until: int) -> bool:
        """Whether a page that has live copies had idle units that changed after `until`."""
        return any(not (self.is_empty(page) or self.is_old(page, until)) for page in self._pages)

    def is_needed(self, page: int) -> bool:
        """Whether the page is needed however old it is: a unit waits in it, was changed since, or is spared."""
        return self._pages[page].waiting > 0 or page in self._pins

    def may_be_as_old(self, page: int, until: int) -> bool:
        """Whether an idle unit in the page changed at `until` or before."""
        return NEVER < self._pages[page].row.earliest <= until

    def writer(self, page: int) -> int:
        """Return the token under which the page was written."""
        return self._origins[bisect_right(self._origins, page, key=_first_page) - 1][1]

    def origins(self, tail: int, writer: int | None) -> tuple[tuple[int, int], ...]:
        """Return the origins of the pages from `tail` on. A `writer` adds pages at the head."""
        needed = self._origins[max(0, bisect_right(self._origins, tail, key=_first_page) - 1) :]
        is_new = writer is not None and (not needed or needed[-1][1] != writer)
        return (*needed, (self.head, writer)) if writer is not None and is_new else needed

    def index_block_rows(self, tail: int) -> tuple[IndexBlockRow, ...]:
        """Return the blocks that are needed after the pages below `tail` were dropped."""
        return tuple(each.row for each in self._leaves if each.end > tail)

    def left_behind(self, tail: int) -> list[IndexBlockRow]:
        return [each.row for each in self._leaves if each.end <= tail]

    def find_open_block(self, tail: int, full_bytes: int) -> OpenIndexBlock | None:
        """Return the last block if it is not full, and is needed after the pages below `tail` were dropped."""
        if self._last_block is None or self._last_block.size >= full_bytes or self._last_block.end <= tail:
            return None
        return OpenIndexBlock(self._leaves[-1].row, self._last_block)

    def pin(self, pages: Iterable[int]) -> None:
        """Mark pages as needed, however old they are."""
        self._pins.update(page for page in pages if page >= self.tail)

    def add(self, row: IndexBlockRow, block: IndexBlock, end: IndexBlock) -> None:
        """Add a block of which only `end` is new. If `end` is only a part of it, it replaces the last block."""
        if end is not block:
            self._leaves.pop()
        self._leaves.append(_IndexBlockState(row, block.end))
        self._last_block = block
        self.head = block.end
        self._unit_index.add(end.index_entries(), end.end - 1)
        for page, each in enumerate(end.rows, end.first_page):
            if page >= self.tail:
                self._pages[page] = _PageState(each)
                self._units += each.units
        for copy in end.dead_copies():
            if (state := self._pages.get(copy.page)) is not None and copy.slot not in state.dead:
                state.dead.add(copy.slot)
                state.waiting -= copy.waited
                self._dead += 1

    def give_up(self, tail: int, origins: tuple[tuple[int, int], ...]) -> None:
        """Drop the pages below `tail`. `origins` are those of the remaining pages, and of the next ones."""
        for page in range(self.tail, tail):
            state = self._pages.pop(page)
            self._units -= state.row.units
            self._dead -= len(state.dead)
            self._pins.discard(page)
        self.tail, self._origins = tail, origins
        while self._leaves and self._leaves[0].end <= tail:
            self._leaves.popleft()
        if not self._leaves:
            self._last_block = None

    def tidy(self) -> None:
        """Do a small part of the unit index's upkeep. Called with each commit."""
        self._unit_index.tidy(self.tail)


def _first_page(origin: tuple[int, int]) -> int:
    return origin[0]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[UnitRecord, ...]).decode


class Page:
    """The units of one page by slots, which count from 0. `size` is about its size in bytes."""

    def __init__(self, records: Sequence[UnitRecord], size: int) -> None:
        self.records = records
        self.size = size
        self._slots: dict[str, int] | None = None

    def find_slot(self, unit: str) -> int | None:
        if self._slots is None:
            self._slots = {record.unit: slot for slot, record in enumerate(self.records)}
        return self._slots.get(unit)


def packed(records: Iterable[UnitRecord], max_bytes: int) -> Iterator[Page]:
    """Pack the records in order into pages of up to `max_bytes`. A larger record gets a page of its own and is not split."""
    page: list[UnitRecord] = []
    size = 0
    for record in records:
        more = record.size
        if page and size + more > max_bytes:
            yield Page(page, size)
            page, size = [], 0
        page.append(record)
        size += more
    if page:
        yield Page(page, size)


def encode_page(page: Page) -> bytes:
    return _encode(page.records)


def decode_page(name: str, payload: bytes) -> Page:
    """Decode a page. Raises StorageRefused if the payload is not one."""
    try:
        return Page(_decode(payload), len(payload))
    except msgspec.DecodeError as error:
        raise undecodable(name, error) from error
