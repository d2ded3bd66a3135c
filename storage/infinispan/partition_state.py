"""The state of a partition in its owner's memory: window, page table, waiting units, pending output and garbage.

Opening a partition takes the counter first, so that no other owner can change anything, and then reads the state.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

from msgspec.structs import replace

from resequencer.errors import OwnershipLost
from resequencer.storage_port import Header, StorageUnavailable, Waits
from storage.fencing import succeeded
from storage.infinispan.cache import PartitionKeys, page_name, segment_name
from storage.infinispan.layout.index import IndexBlock, decode_index_block
from storage.infinispan.layout.page_table import Page, PageTable
from storage.infinispan.layout.segment import (
    CommitVersion,
    ExpiredUnits,
    Kind,
    Missing,
    Segment,
    SegmentManifest,
    UnitRecord,
    Value,
    WaitsRow,
    WindowRow,
    combined,
    count_parts,
    encode_segment,
    part_names,
    token_of,
    token_text,
    waits_of,
)
from storage.infinispan.layout.window import Copy, Progress, Window, find_copy


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


_log = logging.getLogger("resequencer.storage")

_LOOKS = 6
"""How often a value is searched in a cache that may show it late. The caller's pause between tries grows each time."""


class DataLoss:
    """Counts how often each value was missing."""

    def __init__(self, random_token: Callable[[], str]) -> None:
        self._random_token = random_token
        self._missed: Counter[str] = Counter()

    def see_that_it_is_one(self, link: PartitionKeys, version: CommitVersion, missing: Missing) -> None:
        """Return if the value is lost: the partition has not moved, and the value does not appear.

        Raises:
            OwnershipLost: The partition has moved: the value was not needed any more.
            StorageUnavailable: The value may still appear.
        """
        if (now := link.find_version()) != version:
            raise OwnershipLost(f"this worker is at {version}, the counter of {link.name} at {now}") from missing
        name = str(missing)
        self._missed[name] += 1
        if link.may_lag and self._missed[name] <= _LOOKS:
            raise StorageUnavailable(f"{name} is not there yet, or lost: the cache is asynchronous") from missing
        del self._missed[name]
        _log.error("the cache has lost %s: the partition's state is discarded and healed by reading its records again", name)

    def forget(self, link: PartitionKeys, root: Segment) -> None:
        """Give the partition an empty header that keeps only the numbering and the caught-up clock.

        The header has no history, so it knows no position, and the takeover heals. All known values become garbage.
        """
        token = token_text(token_of(self._random_token()))
        header = replace(root.header, token=token, commit=0, next_offset=None, history=())
        segment = Segment(header, manifest=SegmentManifest(garbage=tuple(everything(root))))
        link.write(Value(Kind.SEGMENT, segment_name(segment.version), encode_segment(segment), segment.format))
        link.move(root.version, segment.version)


def everything(root: Segment) -> Iterator[str]:
    """Yield the names of all values that a segment builds on, and its own. Of a page in parts, only the first part's name."""
    manifest = root.manifest
    yield from manifest.garbage
    yield segment_name(root.version)
    for segment in manifest.window:
        yield from part_names(segment.name, segment.parts)
    for block in manifest.blocks:
        yield from part_names(block.name, block.parts)
    for (first, token), (end, _) in pairwise((*manifest.origins, (manifest.head, 0))):
        for page in range(max(first, manifest.tail), end):
            yield page_name(token, page)


_TRIES = 10


class Opening:
    """Opens one partition under a new token. Opening is itself a commit: a segment, and a compare-and-set.

    Keep the instance until it succeeds: each try makes the values of unanswered tries garbage.
    """

    def __init__(self, link: PartitionKeys, loss: DataLoss, random_token: Callable[[], str]) -> None:
        self._link = link
        self._loss = loss
        self._random_token = random_token
        self._unanswered: set[str] = set()

    def open(self) -> PartitionState:
        """Open the partition. Raises StorageUnavailable also if other workers open it again and again."""
        for _ in range(_TRIES):
            if (root := self._claim()) is None:
                continue
            try:
                return read_partition_state(self._link, root)
            except Missing as missing:
                self._begin_anew(root, missing)
        raise StorageUnavailable(f"{self._link.name}: other workers open it at the same time, again and again")

    def _begin_anew(self, root: Segment, missing: Missing) -> None:
        try:
            self._loss.see_that_it_is_one(self._link, root.version, missing)
        except OwnershipLost as error:
            raise StorageUnavailable(f"another worker opened {self._link.name} at the same time: {error}") from error
        self._loss.forget(self._link, root)

    def _claim(self) -> Segment | None:
        """Claim the partition, and return its new segment; None if another worker was faster."""
        if (before := self._link.find_version()) is None:
            self._link.create_counter()
            before = CommitVersion(0, 0)
        segment = self._segment_after(before)
        if segment is None:
            return None
        name = segment_name(segment.version)
        self._unanswered.add(name)
        self._link.write(Value(Kind.SEGMENT, name, encode_segment(segment), segment.format))
        if self._link.move(before, segment.version):
            self._unanswered.clear()
            return segment
        self._link.delete(name)
        self._unanswered.remove(name)
        return None

    def _segment_after(self, before: CommitVersion) -> Segment | None:
        """Return the segment that follows `before`; None if the partition moved meanwhile."""
        if before == CommitVersion(0, 0):
            return self._first_segment()
        name = segment_name(before)
        try:
            last, size = self._link.read_segment(name)
        except Missing as missing:
            try:
                self._loss.see_that_it_is_one(self._link, before, missing)
            except OwnershipLost:
                return None
            return self._first_segment()
        return self._segment_on(last, WindowRow(name, count_parts(size), 0))

    def _first_segment(self) -> Segment:
        return Segment(
            succeeded(None, self._new_token(None)),
            manifest=SegmentManifest(garbage=tuple(self._unanswered)),
        )

    def _segment_on(self, last: Segment, row: WindowRow) -> Segment:
        old = last.manifest
        garbage = [*old.garbage, *self._abandoned(last), *(self._unanswered - {row.name})]
        window = old.window
        if last.changes:
            window = (*window, row)
        else:
            garbage += part_names(row.name, row.parts)
        manifest = SegmentManifest(window, old.blocks, old.origins, old.tail, old.head, tuple(garbage), old.watermark)
        header = succeeded(last.header, self._new_token(last.header))
        return Segment(header, None, manifest, last.pending)

    def _abandoned(self, last: Segment) -> list[str]:
        """Return the names of the values of a commit that never became valid: its owner ended, or is too late."""
        version = last.version
        name = segment_name(CommitVersion(version.token, version.commit + 1))
        try:
            segment, size = self._link.read_segment(name)
        except Missing:
            return []
        known = {row.name for row in last.manifest.blocks}
        blocks = [part for row in segment.manifest.blocks if row.name not in known for part in part_names(row.name, row.parts)]
        pages = [page_name(version.token, page) for page in range(last.manifest.head, segment.manifest.head)]
        return [*part_names(name, count_parts(size)), *blocks, *pages]

    def _new_token(self, header: Header | None) -> str:
        """Return a token that no owner in the history had, because values may exist under names with old tokens."""
        used = {header.token, *dict(header.history)} if header is not None else set()
        while (token := token_text(token_of(self._random_token()))) in used:
            pass
        return token
