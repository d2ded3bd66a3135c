"""Compaction: each commit moves units from the window and the oldest pages into new pages. Pure, except that it reads pages."""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

import msgspec

from storage.infinispan.layout.index_block import DeadCopy
from storage.infinispan.layout.page_table import Page, PageTable, packed
from storage.infinispan.layout.segment import ExpiredUnits, UnitRecord, combined
from storage.infinispan.layout.window import Progress, Window

_PAGES_GIVEN_UP = 64
_PAGES_MOVED = 2
_MAX_DOUBLINGS = 6

ReadPage = Callable[[int], Page]


class CompactionLimits(msgspec.Struct, frozen=True):
    """Compaction begins above `window_bytes` or `window_segments`. One commit moves about `budget_bytes` at most, and twice as
    much for each eighth by which the window is beyond its bounds: a unit is moved whole, however small its changes were.

    A page is closed at `page_bytes`; up to this size a request costs the same. An index block is full at `index_block_bytes`. If
    pages have more than `few_units` copies, the oldest pages are rewritten while more copies are dead than alive.
    """

    window_bytes: int
    window_segments: int
    budget_bytes: int
    page_bytes: int
    index_block_bytes: int
    few_units: int


class Copy(NamedTuple):
    """A copy of a unit in a page."""

    page: int
    slot: int
    record: UnitRecord


class Compacted(msgspec.Struct, frozen=True):
    """The result of a compaction, to be applied as a whole or not at all.

    `pages` are new, numbered from `first_page`. They contain everything that the window has of `units`. `dead` and `woken` are as
    in an index block. Pages below `tail` are dropped.
    """

    first_page: int
    pages: tuple[Page, ...]
    units: frozenset[str]
    dead: tuple[DeadCopy, ...]
    woken: tuple[str, ...]
    progress: Progress
    tail: int

    @property
    def numbered_pages(self) -> list[tuple[int, Page]]:
        return list(enumerate(self.pages, self.first_page))

    def pages_of_units(self) -> dict[str, int]:
        return {record.unit: number for number, page in self.numbered_pages for record in page.records}


def find_copy(page_table: PageTable, pages: Iterable[int], read: ReadPage, unit: str) -> Copy | None:
    """Return the live copy of the unit, if one of these pages has one."""
    for number in pages:
        page = read(number)
        slot = page.find_slot(unit)
        if slot is not None and not page_table.is_dead(number, slot):
            return Copy(number, slot, page.records[slot])
    return None


class Lookup(Protocol):
    """Finds the live copies of units."""

    def read_page(self, number: int) -> Page: ...
    def find_copy(self, unit: str) -> Copy | None: ...


class Compaction:
    """Builds a compaction. It leaves expired units out."""

    def __init__(self, window: Window, page_table: PageTable, lookup: Lookup, forgotten: ExpiredUnits) -> None:
        self._window = window
        self._page_table = page_table
        self._lookup = lookup
        self._forgotten = forgotten
        self._units: set[str] = set()
        self._records: list[UnitRecord] = []
        self._dead: list[DeadCopy] = []
        self._woken: list[str] = []
        self._progress = Progress()
        self._tail = page_table.tail
        self._size = 0

    def compaction(self, limits: CompactionLimits) -> Compacted:
        """Return the compaction. It may exceed the budget by a few pages, because a unit is never split."""
        self._give_up_pages(limits.few_units)
        if self._window.size > limits.window_bytes or len(self._window) > limits.window_segments:
            self._empty_window(limits)
        return Compacted(
            self._page_table.head,
            tuple(packed(self._records, limits.page_bytes)),
            frozenset(self._units),
            tuple(copy for copy in self._dead if copy.page >= self._tail),
            tuple(self._woken),
            self._progress,
            self._tail,
        )

    def _give_up_pages(self, few_units: int) -> None:
        page_table, moved = self._page_table, 0
        for page in range(page_table.tail, min(page_table.head, page_table.tail + _PAGES_GIVEN_UP)):
            is_old = page_table.is_old(page, self._forgotten.until)
            if not (page_table.is_empty(page) or (is_old and not page_table.is_needed(page))):
                if moved == _PAGES_MOVED or not (is_old or self._page_table.is_mostly_dead(few_units)):
                    return
                moved += 1
                self._move(page)
            self._tail = page + 1

    def _move(self, number: int) -> None:
        for slot, record in enumerate(self._lookup.read_page(number).records):
            if not self._page_table.is_dead(number, slot) and record.unit not in self._units:
                self._take(record.unit, Copy(number, slot, record), may_go=record.unit not in self._window)

    def _empty_window(self, limits: CompactionLimits) -> None:
        # If there are many small segments, half of them are moved at once, so that pages do not become small too.
        is_long = len(self._window) > limits.window_segments
        segments_left = limits.window_segments // 2 if is_long else limits.window_segments
        beyond = max(len(self._window) / limits.window_segments, self._window.size / limits.window_bytes) - 1
        budget = limits.budget_bytes << min(max(0, int(8 * beyond)), _MAX_DOUBLINGS)
        for each in self._window.candidates():
            if not each.is_done and each.unit not in self._units:
                self._take(each.unit, self._lookup.find_copy(each.unit), may_go=each.is_last)
            self._progress = each.progress
            if self._size >= budget:
                return
            if each.progress.changes == 0 and self._is_short(segments_left, limits.window_bytes):
                return

    def _is_short(self, segments: int, size: int) -> bool:
        left = len(self._window) - self._progress.segments
        return left <= segments and self._window.size_after(self._progress) <= size

    def _take(self, unit: str, copy: Copy | None, *, may_go: bool) -> None:
        """Move a unit. An expired unit is dropped if `may_go`: then the window has no later change that builds on it."""
        self._units.add(unit)
        whole = combined(copy.record if copy else None, self._window.changes(unit))
        assert whole is not None
        has_waited = copy is not None and copy.record.waits is not None
        if copy is not None:
            self._dead.append(DeadCopy(copy.page, copy.slot, has_waited))
        if not (may_go and self._forgotten.has(whole)):
            self._records.append(whole)
            self._size += whole.size
        if has_waited and whole.waits is None:
            self._woken.append(unit)
