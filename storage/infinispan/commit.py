"""The preparation of a commit: the values to write, and the owner's state after the commit is valid."""

from collections.abc import Sequence

import msgspec

from resequencer.storage_port import Commit
from storage.fencing import advanced
from storage.infinispan.keys import index_block_name, page_name, segment_name
from storage.infinispan.layout.compaction import Compacted, Compaction, CompactionLimits
from storage.infinispan.layout.expiry import ExpiryWatermark
from storage.infinispan.layout.index_block import IndexBlock, encode_index_block, index_block_of
from storage.infinispan.layout.page import Page, encode_page
from storage.infinispan.layout.records import UnitRecord, record_of
from storage.infinispan.layout.segment import (
    CommitVersion,
    IndexBlockRow,
    Segment,
    SegmentManifest,
    WindowRow,
    encode_segment,
    version_of_header,
)
from storage.infinispan.layout.value_framing import Kind, Value, count_parts, part_names
from storage.infinispan.partition_state import PartitionState, take_up_changes


class NewIndexBlock(msgspec.Struct, frozen=True):
    """`whole` is the block to write; only its part `end` is new. `replaced` is the block that it replaces, if any."""

    row: IndexBlockRow
    whole: IndexBlock
    end: IndexBlock
    replaced: IndexBlockRow | None


class Prepared(msgspec.Struct, frozen=True):
    """A prepared commit. Write the first of `values`, then the others; then move the counter to `version`: `segment` is valid.

    `size` is the segment's size in bytes. `bases` has the pages that may contain the changed units, for units whose pages the
    window does not know.
    """

    version: CommitVersion
    values: tuple[Value, ...]
    segment: Segment
    root: WindowRow
    size: int
    bases: dict[str, Sequence[int]]
    compaction: Compacted
    block: NewIndexBlock | None


def records_of(contents: PartitionState, commit: Commit) -> tuple[UnitRecord, ...]:
    """Return the records of a commit. Raises AttributeError for an invalid change, before anything is written.

    Any page that is read may be `Missing`.
    """
    at, is_forgotten = commit.caught_up_ms, contents.is_forgotten
    return tuple(record_of(change, at, begins=is_forgotten(change.unit)) for change in commit.changes)


class Preparation:
    """Prepares a commit. Reads pages, and changes nothing that is valid.

    The compaction removes expired units for good. Only the valid watermark counts for that, so that no such unit is in memory.
    Any page that is read may be `Missing`.
    """

    def __init__(self, contents: PartitionState, limits: CompactionLimits) -> None:
        self._contents = contents
        self._full_block_bytes = limits.index_block_bytes
        contents.pin_spared()
        self._compact = Compaction(contents.window, contents.page_table, contents, contents.forgotten).compaction(limits)

    def prepare(self, commit: Commit, records: Sequence[UnitRecord]) -> Prepared:
        header = advanced(self._contents.header, commit)
        version = version_of_header(header)
        pages = [_page_value(version.token, number, page) for number, page in self._compact.numbered_pages]
        block = self._block(version, [count_parts(len(value.payload)) for value in pages])
        watermark = self._contents.forgotten.next_watermark(records)
        manifest, pending, bases = self._manifest(version, block, watermark), self._pending(commit), self._bases(records)
        pins = tuple(sorted({page for pages in bases.values() for page in pages}))
        segment = Segment(header, commit.attempt, manifest, pending, pins, tuple(records))
        root = Value(Kind.SEGMENT, segment_name(version), encode_segment(segment), segment.format)
        blocks = [Value(Kind.INDEX_BLOCK, block.row.name, encode_index_block(block.whole))] if block is not None else []
        row = WindowRow(root.name, count_parts(len(root.payload)), 0)
        # The segment is written first. After a crash, the next owner uses its names to delete the values of the lost commit.
        return Prepared(version, (root, *pages, *blocks), segment, row, len(root.payload), bases, self._compact, block)

    def _block(self, version: CommitVersion, parts: Sequence[int]) -> NewIndexBlock | None:
        compaction, page_table = self._compact, self._contents.page_table
        pages = [(page.records, count) for page, count in zip(compaction.pages, parts, strict=True)]
        end = index_block_of(compaction.first_page, pages, compaction.woken, compaction.dead)
        if end.says_nothing:
            return None
        begun = page_table.find_open_block(compaction.tail, self._full_block_bytes)
        whole = begun.block.followed_by(end) if begun is not None else end
        row = IndexBlockRow(index_block_name(version), count_parts(len(encode_index_block(whole))))
        return NewIndexBlock(row, whole, end, begun.row if begun is not None else None)

    def _manifest(self, version: CommitVersion, block: NewIndexBlock | None, watermark: ExpiryWatermark) -> SegmentManifest:
        compaction, page_table = self._compact, self._contents.page_table
        blocks = page_table.index_block_rows(compaction.tail)
        if block is not None:
            blocks = (*blocks[: -1 if block.replaced else None], block.row)
        return SegmentManifest(
            self._contents.window.rows(compaction.progress),
            blocks,
            page_table.origins(compaction.tail, version.token if compaction.pages else None),
            compaction.tail,
            compaction.first_page + len(compaction.pages),
            (*self._contents.garbage, *self._superseded(block)),
            watermark,
        )

    def _superseded(self, block: NewIndexBlock | None) -> list[str]:
        """Return the names of values that are garbage once this commit is valid."""
        contents, compaction = self._contents, self._compact
        rows: list[WindowRow | IndexBlockRow] = [
            *contents.window.left_behind(compaction.progress),
            *contents.page_table.left_behind(compaction.tail),
        ]
        if not contents.has_root_changes:
            rows.append(contents.root)
        if block is not None and block.replaced is not None:
            rows.append(block.replaced)
        names = [part for row in rows for part in part_names(row.name, row.parts)]
        for page in range(contents.page_table.tail, compaction.tail):
            names += part_names(page_name(contents.page_table.writer(page), page), contents.page_table.row(page).parts)
        return names

    def _pending(self, commit: Commit) -> tuple[tuple[int, bytes], ...]:
        pending = self._contents.pending | {each.number: each.body for each in commit.added}
        return tuple(sorted((number, body) for number, body in pending.items() if number > commit.published))

    def _bases(self, records: Sequence[UnitRecord]) -> dict[str, Sequence[int]]:
        """Return the pages on which the changes build, for units whose pages the window does not know."""
        compaction, contents = self._compact, self._contents
        moved = compaction.pages_of_units()
        bases: dict[str, Sequence[int]] = {}
        for unit in (record.unit for record in records):
            if unit in compaction.units:
                bases[unit] = (moved[unit],) if unit in moved else ()
            elif contents.window.find_bases(unit) is None:
                bases[unit] = [page for page in contents.find_bases(unit) if page >= compaction.tail]
        return bases


def take_up(contents: PartitionState, prepared: Prepared) -> None:
    """Update the partition's state after the commit has become valid."""
    compaction, segment, page_table = prepared.compaction, prepared.segment, contents.page_table
    contents.window.compaction(compaction.units, compaction.progress)
    page_table.give_up(compaction.tail, segment.manifest.origins)
    if prepared.block is not None:
        page_table.add(prepared.block.row, prepared.block.whole, prepared.block.end)
    page_table.pin(segment.pins)
    page_table.tidy()
    contents.forget_found()
    if segment.changes:
        contents.window.add(prepared.root, segment.changes, prepared.size)
        contents.window.note_bases(prepared.bases)
    take_up_changes(contents, segment.changes)
    contents.forgotten.take_up(segment.manifest.watermark, segment.changes)
    contents.header, contents.attempt = segment.header, segment.attempt
    contents.root, contents.has_root_changes = prepared.root, bool(segment.changes)
    contents.pending = dict(segment.pending)
    contents.garbage = list(segment.manifest.garbage)


def _page_value(token: int, number: int, page: Page) -> Value:
    return Value(Kind.PAGE, page_name(token, number), encode_page(page))
