"""The state of a partition in its owner's memory: window, page table, waiting units, pending output and garbage."""

from collections.abc import Iterable, Sequence

from resequencer.storage_port import Waits
from storage.infinispan.keys import PartitionKeys, page_name, segment_name
from storage.infinispan.layout.compaction import Copy, find_copy
from storage.infinispan.layout.index_block import IndexBlock, decode_index_block
from storage.infinispan.layout.page_table import Page, PageTable
from storage.infinispan.layout.segment import (
    ExpiredUnits,
    Kind,
    Segment,
    SegmentManifest,
    UnitRecord,
    WaitsRow,
    WindowRow,
    combined,
    count_parts,
    encode_segment,
    waits_of,
)
from storage.infinispan.layout.window import Progress, Window


class PartitionState:
    """The state after the last commit that succeeded. `root` is the segment to which the counter points."""

    def __init__(self, link: PartitionKeys, root: Segment) -> None:
        self._link = link
        self.header = root.header
        self.attempt = root.attempt
        self.root = WindowRow(segment_name(root.version), count_parts(len(encode_segment(root))), 0)
        self.has_root_changes = bool(root.changes)
        self.page_table = PageTable(root.manifest)
        self.window = Window()
        self.waits: dict[str, Waits] = {}
        self.pending = dict(root.pending)
        self.garbage = list(root.manifest.garbage)
        self.forgotten = ExpiredUnits(root.manifest.watermark)
        self._found: dict[str, Sequence[int]] = {}

    def find(self, unit: str) -> UnitRecord | None:
        """Return the whole unit, expired or not; None if it does not exist.

        Raises:
            Missing: A page is missing.
        """
        copy = self.find_copy(unit)
        return combined(copy.record if copy else None, self.window.changes(unit))

    def find_copy(self, unit: str) -> Copy | None:
        """Return the live copy of the unit in the pages. Raises: as `find`."""
        return find_copy(self.page_table, self.find_bases(unit), self.read_page, unit)

    def find_bases(self, unit: str) -> Sequence[int]:
        """Return the pages that may contain the unit, the newest first. Answers are cached until the next commit."""
        bases = self.window.find_bases(unit)
        if bases is None and (bases := self._found.get(unit)) is None:
            bases = self._found[unit] = self.page_table.find(unit)
        return [page for page in bases if page >= self.page_table.tail] if bases else ()

    def is_forgotten(self, unit: str) -> bool:
        """Whether the unit has expired, so that its next change starts empty, though the cache may still have the old data.

        Raises: as `find`.
        """
        if (last := self.window.find_last(unit)) is not None:
            return self.forgotten.has(last)
        until = self.forgotten.until
        if not any(self.page_table.may_be_as_old(page, until) for page in self.find_bases(unit)):
            return False
        record = self.find(unit)
        return record is not None and self.forgotten.has(record)

    def pin_spared(self) -> None:
        """Pin the pages of spared units, so that they are not dropped unread."""
        self.page_table.pin(page for unit in self.forgotten.spared for page in self.find_bases(unit))

    def forget_found(self) -> None:
        """Clear the cache of `find_bases`, after the pages have changed."""
        self._found.clear()

    def read_page(self, number: int) -> Page:
        """Read a page. Raises: as `find`."""
        return self._link.read_page(page_name(self.page_table.writer(number), number))

    def as_root(self) -> Segment:
        """Return a segment that refers to all values of the partition."""
        manifest = SegmentManifest(
            self.window.rows(Progress()),
            self.page_table.index_block_rows(self.page_table.tail),
            self.page_table.origins(self.page_table.tail, None),
            self.page_table.tail,
            self.page_table.head,
            tuple(self.garbage),
        )
        return Segment(self.header, self.attempt, manifest)

    def note_waiting(self, unit: str, row: WaitsRow | None) -> None:
        if row is not None:
            self.waits[unit] = waits_of(row)
        else:
            self.waits.pop(unit, None)


def read_partition_state(link: PartitionKeys, root: Segment) -> PartitionState:
    """Read everything except the pages, in the order in which it was written.

    Raises:
        Missing: A value to which the root refers is missing.
    """
    contents = PartitionState(link, root)
    for row in root.manifest.blocks:
        block = decode_index_block(f"{link.name}:{row.name}", link.read(Kind.INDEX_BLOCK, row.name))
        contents.page_table.add(row, block, block)
        _take_up_block(contents, block)
    for each in root.manifest.window:
        segment, size = link.read_segment(each.name)
        contents.window.add(each, segment.changes, size)
        contents.page_table.pin(segment.pins)
        take_up_changes(contents, segment.changes)
    return contents


def _take_up_block(contents: PartitionState, block: IndexBlock) -> None:
    for unit in block.woken:
        contents.note_waiting(unit, None)
    for unit, row in block.waits:
        contents.note_waiting(unit, row)


def take_up_changes(contents: PartitionState, records: Iterable[UnitRecord]) -> None:
    for record in records:
        contents.note_waiting(record.unit, record.waits)
