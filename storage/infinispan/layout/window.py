"""The window has the segments whose changes are not in pages yet, in memory so that they need not be read again.

Compaction: each commit moves units from the window and the oldest pages into new pages. Pure, except that it reads pages.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

import msgspec

from storage.infinispan.layout.index import DeadCopy
from storage.infinispan.layout.page_table import Page, PageTable, packed
from storage.infinispan.layout.segment import ExpiredUnits, Segment, UnitRecord, WindowRow, combined
from storage.view_port import count_commits_since


class Progress(NamedTuple):
    """The progress of a compaction: the count of complete segments from the oldest on, and of changes of the next segment."""

    segments: int = 0
    changes: int = 0


class Candidate(NamedTuple):
    """The unit of the next change to compact, and the progress after it.

    `is_done`: a page has the change already. `is_last`: the window has no later change of the unit.
    """

    unit: str
    is_done: bool
    is_last: bool
    progress: Progress


class _Segment:
    """`ordinal` counts the segments added to the window. The first `compacted` of `units` are in pages."""

    __slots__ = ("compacted", "name", "ordinal", "parts", "size", "units")

    def __init__(self, row: WindowRow, ordinal: int, records: Sequence[UnitRecord], size: int) -> None:
        self.name, self.parts, self.compacted = row.name, row.parts, row.compacted
        self.ordinal = ordinal
        self.units = [record.unit for record in records]
        self.size = size

    def row(self, compacted: int) -> WindowRow:
        return WindowRow(self.name, self.parts, compacted)


class _Recent:
    """A unit's changes in the window with the ordinals of their segments, oldest first. A page has those up to `covered`.

    `bases` are the pages on which the changes build, None before the first look-up. These pages are pinned.
    """

    __slots__ = ("bases", "changes", "covered")

    def __init__(self) -> None:
        self.changes: list[tuple[int, UnitRecord]] = []
        self.covered = -1
        self.bases: Sequence[int] | None = None


class Window:
    """The window. Units are compacted in the order of their changes, each with all its changes in the window."""

    def __init__(self) -> None:
        self._segments: deque[_Segment] = deque()
        self._recent: dict[str, _Recent] = {}
        self._next_ordinal = 0
        self.size = 0

    def __len__(self) -> int:
        """The number of segments."""
        return len(self._segments)

    def __contains__(self, unit: str) -> bool:
        return unit in self._recent

    def changes(self, unit: str) -> list[UnitRecord]:
        """Return the unit's changes, oldest first."""
        recent = self._recent.get(unit)
        return [record for _, record in recent.changes] if recent is not None else []

    def find_last(self, unit: str) -> UnitRecord | None:
        recent = self._recent.get(unit)
        return recent.changes[-1][1] if recent is not None else None

    def has_any(self, forgotten: ExpiredUnits) -> bool:
        """Whether any unit of the window has not expired."""
        return any(not forgotten.has(recent.changes[-1][1]) for recent in self._recent.values())

    def find_bases(self, unit: str) -> Sequence[int] | None:
        """Return the pages that may contain the unit, the newest first; None if only the unit index knows them."""
        recent = self._recent.get(unit)
        return recent.bases if recent is not None else None

    def note_bases(self, bases: Mapping[str, Sequence[int]]) -> None:
        """Note the pages on which the changes of units in the window build."""
        for unit, pages in bases.items():
            self._recent[unit].bases = pages

    def add(self, row: WindowRow, records: Sequence[UnitRecord], size: int) -> None:
        """Add a segment of `size` bytes."""
        segment = _Segment(row, self._next_ordinal, records, size)
        self._next_ordinal += 1
        self._segments.append(segment)
        self.size += segment.size
        for record in records:
            if (recent := self._recent.get(record.unit)) is None:
                recent = self._recent[record.unit] = _Recent()
            recent.changes.append((segment.ordinal, record))

    def rows(self, progress: Progress) -> tuple[WindowRow, ...]:
        """Return the rows of a manifest after a compaction with this progress."""
        rows = [each.row(each.compacted) for each in islice(self._segments, progress.segments, None)]
        if progress.changes:
            rows[0] = self._segments[progress.segments].row(progress.changes)
        return tuple(rows)

    def left_behind(self, progress: Progress) -> list[WindowRow]:
        """Return the segments that are unused after a compaction with this progress."""
        return [each.row(each.compacted) for each in islice(self._segments, progress.segments)]

    def candidates(self) -> Iterator[Candidate]:
        """Yield the candidates for compaction, the oldest change first."""
        for count, segment in enumerate(self._segments):
            for index in range(segment.compacted, len(segment.units)):
                recent = self._recent[segment.units[index]]
                is_last = recent.changes[-1][0] == segment.ordinal
                progress = Progress(count + 1) if index + 1 == len(segment.units) else Progress(count, index + 1)
                yield Candidate(segment.units[index], recent.covered >= segment.ordinal, is_last, progress)

    def size_after(self, progress: Progress) -> int:
        return self.size - sum(each.size for each in islice(self._segments, progress.segments))

    def compaction(self, units: Collection[str], progress: Progress) -> None:
        """Apply a compaction: pages have all of these units now."""
        for unit in units:
            if (recent := self._recent.get(unit)) is not None:
                recent.covered = recent.changes[-1][0]
                recent.bases = None
        for _ in range(progress.segments):
            self._leave(self._segments.popleft())
        if progress.changes:
            self._segments[0].compacted = progress.changes

    def _leave(self, segment: _Segment) -> None:
        self.size -= segment.size
        for unit in segment.units:
            recent = self._recent[unit]
            del recent.changes[0]
            if not recent.changes:
                del self._recent[unit]


_Position = tuple[int, int]


def find_later_segments(root: Segment, marker: str | None) -> Sequence[WindowRow] | None:
    """Return the window's segments later than the marked commit, the oldest first, without the root itself.

    Returns None if some may be missing: the partition's history does not have the marked commit, or the window begins too late,
    because pages have the changes by now.
    """
    header = root.header
    if count_commits_since(header, marker) is None:
        return None
    owners = {token: age for age, (token, _) in enumerate((*header.history, (header.token, header.commit)))}
    marked = _find_position(owners, *(marker or "").partition("/")[::2])
    rows = [(row, _find_position(owners, *row.name.split(":")[1:])) for row in root.manifest.window]
    if marked is None or any(position is None for _, position in rows):
        return None
    known = [(row, position) for row, position in rows if position is not None]
    oldest = known[0][1] if known else (owners[header.token], header.commit)
    age, commit = marked
    return [row for row, position in known if position > marked] if oldest <= (age, commit + 1) else None


def _find_position(owners: Mapping[str, int], token: str, commit: str) -> _Position | None:
    """Return the place of a commit in the partition's history: the age of its owner, and its number."""
    return (owners[token], int(commit)) if token in owners and commit.isdecimal() else None


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
        remaining = len(self._window) - self._progress.segments
        return remaining <= segments and self._window.size_after(self._progress) <= size

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
