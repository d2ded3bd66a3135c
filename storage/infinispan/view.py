"""The view of the Infinispan storage: each partition from its counter, by GET requests only."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TypeVar

from resequencer.record import Partition
from resequencer.storage_port import Header, StorageUnavailable
from storage.infinispan.cache import Cache, PageMemory, PartitionKeys, page_name, segment_name
from storage.infinispan.layout.index import BlockLookup, IndexBlock, UnitIndex, decode_index_block, lookup_of
from storage.infinispan.layout.page_table import Page, PageTable
from storage.infinispan.layout.segment import (
    CommitVersion,
    ExpiredUnits,
    Kind,
    Missing,
    Segment,
    UnitRecord,
    WaitsRow,
    WindowRow,
    combined,
    snapshot_of,
    waits_of,
)
from storage.infinispan.layout.window import find_later_segments
from storage.view_port import UnitView, WaitingChanges, WaitingPortion, marker_of, whole_of_nothing

_TRIES = 20
_PORTION_UNITS = 2_000

_Read = TypeVar("_Read")
_LastWaits = dict[str, WaitsRow | None]
"""The last waits of units, None for units that do not wait."""


class PartitionView:
    """Remembers of the values that it read what finds units, as long as the partition builds on them: they never change.

    `memory` keeps the changes of the segments that were read last, under their names.

    An owner deletes values that newer ones replace. A read that misses one begins again from the segment that the counter names
    by then, a bounded number of times.
    """

    def __init__(self, link: PartitionKeys, memory: PageMemory) -> None:
        self._link = link
        self._memory = memory
        self._known: tuple[CommitVersion, Header] | None = None
        self._lookups: dict[str, BlockLookup] = {}
        self._units: dict[str, frozenset[str]] = {}

    def find_header(self) -> Header | None:
        """Return the header. It takes one request if nothing was committed since the last call."""
        version = self._link.find_version()
        if self._known is not None and self._known[0] == version:
            return self._known[1]
        return self._from_root(lambda root: root.header)

    def find_unit(self, unit: str) -> UnitView | None:
        """Return a unit. The first call reads the window and all index blocks, later ones only new segments and blocks."""
        return self._from_root(lambda root: self._find_unit(root, unit))

    def find_waiting(self, marker: str | None) -> WaitingChanges | None:
        """Return the changes since the marker as long as the window has them all, otherwise the whole."""
        if self._known is not None and marker == marker_of(self._known[1]) and self._link.find_version() == self._known[0]:
            return None
        found = self._from_root(lambda root: (self._find_changes(root, marker),))
        if found is None:
            return whole_of_nothing() if marker else None
        return found[0]

    def _from_root(self, read: Callable[[Segment], _Read]) -> _Read | None:
        """Return what `read` reads from the present root, None if the partition was never opened."""
        for _ in range(_TRIES):
            version = self._link.find_version()
            if version is None or version.token == 0:
                return None
            try:
                root, _ = self._link.read_segment(segment_name(version))
                self._known = version, root.header
                self._forget_all_but(root)
                self._units[segment_name(version)] = frozenset(record.unit for record in root.changes)
                return read(root)
            except Missing as missing:
                self._see_that_it_moved(version, missing)
        raise self._too_fast()

    def _see_that_it_moved(self, version: CommitVersion, missing: Missing) -> None:
        if self._link.find_version() == version:
            text = f"{missing} is missing: it is not visible yet, or the cache has lost it, which the next owner heals"
            raise StorageUnavailable(text) from missing

    def _too_fast(self) -> StorageUnavailable:
        return StorageUnavailable(f"{self._link.name}: it changes faster than it can be read")

    # A unit.

    def _find_unit(self, root: Segment, unit: str) -> UnitView | None:
        changes = [*self._window_changes(root, unit), *(record for record in root.changes if record.unit == unit)]
        whole = combined(self._find_copy(root, unit), changes)
        if whole is None or ExpiredUnits(root.manifest.watermark).has(whole):
            return None
        return UnitView(snapshot_of(whole), None if whole.waits is None else waits_of(whole.waits))

    def _window_changes(self, root: Segment, unit: str) -> Iterator[UnitRecord]:
        for row in root.manifest.window:
            if row.name not in self._units or unit in self._units[row.name]:
                yield from (record for record in self._read_changes(row) if record.unit == unit)

    def _find_copy(self, root: Segment, unit: str) -> UnitRecord | None:
        """Return the live copy of the unit in the pages."""
        lookups = [self._lookups.get(row.name) or lookup_of(self._read_block(row.name)) for row in root.manifest.blocks]
        index, writer = UnitIndex(), PageTable(root.manifest).writer
        for each in lookups:
            index.add(each.entries, each.end - 1)
        for number in index.find(unit, root.manifest.tail):
            page = self._link.read_page(page_name(writer(number), number))
            slot = page.find_slot(unit)
            if slot is not None and not any(each.has_dead(number, slot) for each in lookups):
                return page.records[slot]
        return None

    # What waits.

    def _find_changes(self, root: Segment, marker: str | None) -> WaitingChanges | None:
        if marker == marker_of(root.header):
            return None
        later = find_later_segments(root, marker)
        if later is None:
            portions = self._read_whole(root, self._read_waits(root, root.manifest.window))
            return WaitingChanges(marker_of(root.header), True, portions)
        return WaitingChanges(marker_of(root.header), False, _portions(self._read_waits(root, later).items()))

    def _read_waits(self, root: Segment, window: Sequence[WindowRow]) -> _LastWaits:
        """Return the last waits of the units that these segments and the root change."""
        read = chain.from_iterable(self._read_changes(row) for row in window)
        return {record.unit: record.waits for record in chain(read, root.changes)}

    def _read_whole(self, root: Segment, window: _LastWaits) -> Iterator[WaitingPortion]:
        """Read the index blocks from the oldest to the newest, then give what the window says. A later entry counts.

        A newer root has the same blocks, with three exceptions: a block that repeats the last one may replace it, newer ones may
        follow, and the oldest may be dropped. So the reading goes on from a newer root, as long as that dropped no unread block.
        The window stays that of the first root, whose commit the marker names: what was changed later comes with the next call.
        """
        read: set[str] = set()
        end = -1
        for _ in range(_TRIES):
            try:
                for row in root.manifest.blocks:
                    if row.name not in read:
                        block = self._read_block(row.name)
                        read.add(row.name)
                        end = block.end
                        yield from _portions(chain(((unit, None) for unit in block.woken), block.waits))
            except Missing as missing:
                self._see_that_it_moved(root.version, missing)
                newer = self._from_root(lambda root: root)
                if newer is None or (read and not newer.manifest.tail < end <= newer.manifest.head):
                    raise self._too_fast() from missing
                root = newer
            else:
                yield from _portions(window.items())
                return
        raise self._too_fast()

    # Values.

    def _read_block(self, name: str) -> IndexBlock:
        block = decode_index_block(f"{self._link.name}:{name}", self._link.read(Kind.INDEX_BLOCK, name))
        self._lookups[name] = lookup_of(block)
        return block

    def _read_changes(self, row: WindowRow) -> Sequence[UnitRecord]:
        name = f"{self._link.name}:{row.name}"
        if (kept := self._memory.find(name)) is None:
            segment, size = self._link.read_segment(row.name)
            kept = Page(segment.changes, size)
            self._memory.keep(name, kept)
            self._units[row.name] = frozenset(record.unit for record in segment.changes)
        return kept.records

    def _forget_all_but(self, root: Segment) -> None:
        blocks, window = {row.name for row in root.manifest.blocks}, {row.name for row in root.manifest.window}
        self._lookups = {name: lookup for name, lookup in self._lookups.items() if name in blocks}
        self._units = {name: units for name, units in self._units.items() if name in window}


def _portions(waits: Iterable[tuple[str, WaitsRow | None]]) -> Iterator[WaitingPortion]:
    rest = iter(waits)
    while some := list(islice(rest, _PORTION_UNITS)):
        yield [(unit, None if row is None else waits_of(row)) for unit, row in some]


_MEMORY_BYTES = 16 * 2**20


class InfinispanStorageView:
    """Holds 8 to 16 bytes for each unit of the partitions in which a unit was looked up. The cache is not set up."""

    def __init__(self, cache: Cache, namespace: str) -> None:
        self._cache = cache
        self._namespace = namespace
        self._memory = PageMemory(_MEMORY_BYTES)
        self._partitions: dict[Partition, PartitionView] = {}

    def find_header(self, partition: Partition) -> Header | None:
        return self._view_of(partition).find_header()

    def find_unit(self, partition: Partition, unit: str) -> UnitView | None:
        return self._view_of(partition).find_unit(unit)

    def find_waiting(self, partition: Partition, marker: str | None) -> WaitingChanges | None:
        return self._view_of(partition).find_waiting(marker)

    def close(self) -> None:
        self._cache.close()
        self._partitions.clear()

    def _view_of(self, partition: Partition) -> PartitionView:
        if partition not in self._partitions:
            link = PartitionKeys(self._cache, self._namespace, partition, self._memory)
            self._partitions[partition] = PartitionView(link, self._memory)
        return self._partitions[partition]
