"""All that an owner knows of its partition: the window, the archive, what waits, what is pending, what is garbage."""

from collections.abc import Iterable, Sequence

from storage.infinispan.compaction import Copy, find_copy
from storage.infinispan.expiry import Forgotten, Horizon
from storage.infinispan.index_block import Leaf, decode_leaf
from storage.infinispan.page import Page
from storage.infinispan.page_table import Archive
from storage.infinispan.partition_keys import PartitionLink, page_name, segment_name
from storage.infinispan.records import UnitRecord, WaitsRow, combined, waits_of
from storage.infinispan.segment import Manifest, Segment, WindowRow, encode_segment
from storage.infinispan.value_framing import Kind, count_parts
from storage.infinispan.window import Progress, Window
from storage.port import Waits


class Contents:
    """As of the last commit that was answered. `root` is the segment that the counter names."""

    def __init__(self, link: PartitionLink, root: Segment) -> None:
        self._link = link
        self.header = root.header
        self.attempt = root.attempt
        self.root = WindowRow(segment_name(root.stand), count_parts(len(encode_segment(root))), 0)
        self.has_root_changes = bool(root.changes)
        self.archive = Archive(root.manifest)
        self.window = Window()
        self.waits: dict[str, Waits] = {}
        self.pending = dict(root.pending)
        self.garbage = list(root.manifest.garbage)
        self.counts_on_wall_clock = root.manifest.horizon is None
        self.forgotten = Forgotten(root.manifest.horizon or Horizon())
        self._found: dict[str, Sequence[int]] = {}

    def find(self, unit: str) -> UnitRecord | None:
        """All of the unit, forgotten or not.

        Raises:
            Missing: A page is not there.
        """
        copy = self.find_copy(unit)
        return combined(copy.record if copy else None, self.window.changes(unit))

    def find_copy(self, unit: str) -> Copy | None:
        """Raises: as `find`."""
        return find_copy(self.archive, self.find_bases(unit), self.read_page, unit)

    def find_bases(self, unit: str) -> Sequence[int]:
        """The pages that may have it, the newest first. What is asked again before the next commit is remembered."""
        bases = self.window.find_bases(unit)
        if bases is None and (bases := self._found.get(unit)) is None:
            bases = self._found[unit] = self.archive.find(unit)
        return [page for page in bases if page >= self.archive.tail] if bases else ()

    def is_forgotten(self, unit: str) -> bool:
        """Whether a change of it begins anew, though the cache may still have what was before.

        Raises: as `find`.
        """
        if (last := self.window.find_last(unit)) is not None:
            return self.forgotten.has(last)
        until = self.forgotten.until
        if not any(self.archive.may_be_as_old(page, until) for page in self.find_bases(unit)):
            return False
        record = self.find(unit)
        return record is not None and self.forgotten.has(record)

    def pin_spared(self) -> None:
        """Pages with units that are spared may not be given up without looking into them."""
        self.archive.pin(page for unit in self.forgotten.spared for page in self.find_bases(unit))

    @property
    def last_change(self) -> int:
        """When the unit changed that changed last, as far as is known without reading pages."""
        return max(self.window.last_change, self.archive.last_change)

    def forget_found(self) -> None:
        """The pages are no longer those that they were."""
        self._found.clear()

    def read_page(self, number: int) -> Page:
        """Raises: as `find`."""
        return self._link.read_page(page_name(self.archive.writer(number), number))

    def as_root(self) -> Segment:
        """A segment that names all of it."""
        manifest = Manifest(
            self.window.rows(Progress()),
            self.archive.leaf_rows(self.archive.tail),
            self.archive.origins(self.archive.tail, None),
            self.archive.tail,
            self.archive.head,
            tuple(self.garbage),
        )
        return Segment(self.header, self.attempt, manifest)

    def note_waiting(self, unit: str, row: WaitsRow | None) -> None:
        if row is not None:
            self.waits[unit] = waits_of(row)
        else:
            self.waits.pop(unit, None)


def read_contents(link: PartitionLink, root: Segment) -> Contents:
    """Everything but the pages, in the order in which it was written.

    Raises:
        Missing: Something that it names is not there.
    """
    contents = Contents(link, root)
    for row in root.manifest.leaves:
        leaf = decode_leaf(f"{link.name}:{row.name}", link.read(Kind.LEAF, row.name))
        contents.archive.add(row, leaf, leaf)
        _take_up_leaf(contents, leaf)
    for each in root.manifest.window:
        segment, size = link.read_segment(each.name)
        contents.window.add(each, segment.changes, size)
        contents.archive.pin(segment.pins)
        take_up_changes(contents, segment.changes)
    return contents


def _take_up_leaf(contents: Contents, leaf: Leaf) -> None:
    for unit in leaf.woken:
        contents.note_waiting(unit, None)
    for unit, row in leaf.waits:
        contents.note_waiting(unit, row)


def take_up_changes(contents: Contents, records: Iterable[UnitRecord]) -> None:
    for record in records:
        contents.note_waiting(record.unit, record.waits)
