"""The window: the segments whose changes are not in pages yet, in memory so that they need not be read again. Pure."""

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from storage.infinispan.layout.segment import Segment, UnitRecord, WindowRow
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
