"""One partition in Infinispan, for its owner."""

from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial

import msgspec

from resequencer.errors import OwnershipLost
from resequencer.storage_port import Commit, Header, Pending, Snapshot, StorageUnavailable, Waits
from storage.fencing import advanced
from storage.infinispan.cache import PartitionKeys, index_block_name, page_name, segment_name
from storage.infinispan.layout.index import IndexBlock, encode_index_block, index_block_of
from storage.infinispan.layout.page_table import Page, encode_page
from storage.infinispan.layout.segment import (
    MAX_COMMITS,
    CommitVersion,
    ExpiryWatermark,
    IndexBlockRow,
    Kind,
    Missing,
    Segment,
    SegmentManifest,
    UnitRecord,
    Value,
    WindowRow,
    count_parts,
    cut,
    encode_segment,
    part_names,
    record_of,
    snapshot_of,
    version_of_header,
)
from storage.infinispan.layout.window import Compacted, Compaction, CompactionLimits
from storage.infinispan.partition_state import DataLoss, PartitionState, take_up_changes


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


class CommitAttempt:
    """Remembers its progress. Until the counter has moved, nothing valid has changed."""

    def __init__(self, link: PartitionKeys, expected: CommitVersion, prepared: Prepared) -> None:
        self._link = link
        self._expected = expected
        root, *others = prepared.values
        self._unwritten = [partial(link.write, root), partial(link.write_all, others)]
        self._is_unanswered = False
        self.prepared = prepared

    def make(self) -> None:
        """Write the values and move the counter. Returns once the commit is valid.

        Raises:
            OwnershipLost: The commit can never be valid, because the partition has moved.
            StorageUnavailable: The cache did not answer; repeat the call.
        """
        while self._unwritten:
            self._unwritten[0]()
            del self._unwritten[0]
        if not self._swap_version() and (now := self._link.find_version()) != self.prepared.version:
            self._clear_away()
            raise OwnershipLost(f"this worker is at {self._expected}, the counter of {self._link.name} at {now}")

    def _swap_version(self) -> bool:
        try:
            return self._link.move(self._expected, self.prepared.version)
        except StorageUnavailable:
            self._is_unanswered = True
            raise

    def _clear_away(self) -> None:
        """Delete the written values. Not after a lost answer: then the commit may have become valid, and others build on it."""
        if not self._is_unanswered:
            with suppress(StorageUnavailable):
                for value in self.prepared.values:
                    for name, _ in cut(value):
                        self._link.delete(name)


_DELETED_PER_COMMIT = 4
_NOTHING: tuple[int, Callable[[], None]] = 0, lambda: None


class InfinispanPartitionStore:
    """A partition under the token of `contents`, its state after the last commit that succeeded.

    `limits` returns the limits of the compaction for a commit of so many bytes.
    """

    def __init__(
        self, link: PartitionKeys, contents: PartitionState, loss: DataLoss, limits: Callable[[int], CompactionLimits]
    ) -> None:
        self._link = link
        self._contents = contents
        self._loss = loss
        self._limits = limits
        self._tried: CommitAttempt | None = None
        self._clearing = _NOTHING

    @property
    def header(self) -> Header:
        return self._contents.header

    def load(self, units: Collection[str]) -> Mapping[str, Snapshot]:
        with self._losses_explained():
            found = [record for unit in units if (record := self._contents.find(unit)) is not None]
        self._check_owner()
        forgotten = self._contents.forgotten
        remembered = [record for record in found if not forgotten.has(record)]
        for record in remembered:
            forgotten.note_in_memory(record)
        return {record.unit: snapshot_of(record) for record in remembered}

    def waiting(self) -> Sequence[tuple[str, Waits]]:
        self._check_owner()
        return list(self._contents.waits.items())

    def has_units(self) -> bool:
        self._check_owner()
        contents, forgotten = self._contents, self._contents.forgotten
        is_known = bool(contents.waits or forgotten.spared) or contents.window.has_any(forgotten)
        return is_known or contents.page_table.has_any_since(forgotten.until)

    def pending(self) -> Sequence[Pending]:
        self._check_owner()
        return [Pending(*entry) for entry in sorted(self._contents.pending.items())]

    def commit(self, commit: Commit) -> None:
        if (commit.number, commit.attempt) == (self.header.commit, self._contents.attempt):
            self._check_owner()
            return
        self._see_that_it_is_next(commit)
        if self._tried is None:
            self._end_of_clearing()
            self._tried = self._prepare(commit)
        self._tried.make()
        prepared, self._tried = self._tried.prepared, None
        take_up(self._contents, prepared)
        self._begin_to_clear_away(_DELETED_PER_COMMIT + len(prepared.compaction.pages) + len(self._contents.garbage) // 50)

    def expire(self, until: int, spared: Container[str]) -> int:
        """Move the watermark of the next commit. Removes nothing now: later commits delete the expired units. Returns 0."""
        self._check_owner()
        self._contents.forgotten.move(until, spared)
        return 0

    def _prepare(self, commit: Commit) -> CommitAttempt:
        with self._losses_explained():
            records = records_of(self._contents, commit)
            limits = self._limits(sum(record.size for record in records))
            prepared = Preparation(self._contents, limits).prepare(commit, records)
        for number, page in prepared.compaction.numbered_pages:
            self._link.remember_page(page_name(prepared.version.token, number), page)
        return CommitAttempt(self._link, version_of_header(self.header), prepared)

    def _see_that_it_is_next(self, commit: Commit) -> None:
        """Check that the commit follows. A number that was tried belongs to its attempt, which may be or become valid."""
        header, tried = self.header, self._tried
        if commit.number != header.commit + 1 or commit.number > MAX_COMMITS:
            raise OwnershipLost(f"commit {commit.number} of {self._link.name} does not follow {header.token}/{header.commit}")
        if tried is not None and tried.prepared.segment.attempt != commit.attempt:
            raise OwnershipLost(f"commit {header.token}/{commit.number} of {self._link.name} was tried with another attempt")

    def _check_owner(self) -> None:
        version = version_of_header(self.header)
        if (now := self._link.find_version()) != version:
            raise OwnershipLost(f"this worker is at {version}, the counter of {self._link.name} at {now}")

    @contextmanager
    def _losses_explained(self) -> Iterator[None]:
        try:
            yield
        except Missing as missing:
            root = self._contents.as_root()
            self._loss.see_that_it_is_one(self._link, root.version, missing)
            self._loss.forget(self._link, root)
            raise OwnershipLost(f"{missing} is lost; the partition must be taken over again") from missing

    def _begin_to_clear_away(self, limit: int) -> None:
        """Begin to delete garbage, up to so many values. The next commit records the rest."""
        names = self._contents.garbage[:limit]
        self._clearing = len(names), self._link.begin_to_delete(names)

    def _end_of_clearing(self) -> None:
        """Wait until the garbage is gone. What could not be deleted is so after the next commit."""
        (count, wait), self._clearing = self._clearing, _NOTHING
        with suppress(StorageUnavailable):
            wait()
            del self._contents.garbage[:count]
