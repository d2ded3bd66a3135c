"""A commit on its way: all that is to be written for it, and what its owner knows once it counts."""

from collections.abc import Sequence

import msgspec

from storage.fencing import advanced
from storage.infinispan.compaction import Fold, Folding, FoldLimits
from storage.infinispan.expiry import Horizon
from storage.infinispan.index_block import Leaf, encode_leaf, leaf_of
from storage.infinispan.page import Page, encode_page
from storage.infinispan.partition_keys import leaf_name, page_name, segment_name
from storage.infinispan.partition_state import Contents, take_up_changes
from storage.infinispan.records import UnitRecord, record_of
from storage.infinispan.segment import LeafRow, Manifest, Segment, Stand, WindowRow, encode_segment, stand_of_header
from storage.infinispan.value_framing import Kind, Value, count_parts, part_names
from storage.port import Commit


class NewLeaf(msgspec.Struct, frozen=True):
    """`whole` is what is written, of which only `end` is new; `replaced` is what it was before."""

    row: LeafRow
    whole: Leaf
    end: Leaf
    replaced: LeafRow | None


class Prepared(msgspec.Struct, frozen=True):
    """`values` are to be written in their order; then the counter moves to `stand`, and `segment` counts.

    `size` are its bytes; `bases` the pages in which the changed units may lie, as far as the window does not know them.
    """

    stand: Stand
    values: tuple[Value, ...]
    segment: Segment
    root: WindowRow
    size: int
    bases: dict[str, Sequence[int]]
    fold: Fold
    leaf: NewLeaf | None


def records_of(contents: Contents, commit: Commit) -> tuple[UnitRecord, ...]:
    """Raises AttributeError for what is no change: before anything is written. Any page that is read may be `Missing`."""
    at, is_forgotten = commit.caught_up_ms, contents.is_forgotten
    return tuple(record_of(change, at, begins=is_forgotten(change.unit)) for change in commit.changes)


class Preparation:
    """Makes a commit ready to be written. Reads pages and changes nothing that counts.

    Units that are forgotten may go for good: those of the horizon that counts already, so that none of them is in memory. Any
    page that is read may be `Missing`.
    """

    def __init__(self, contents: Contents, limits: FoldLimits) -> None:
        self._contents = contents
        self._full_leaf_bytes = limits.leaf_bytes
        contents.pin_spared()
        self._fold = Folding(contents.window, contents.archive, contents, contents.forgotten).fold(limits)

    def prepare(self, commit: Commit, records: Sequence[UnitRecord]) -> Prepared:
        header = advanced(self._contents.header, commit)
        stand = stand_of_header(header)
        pages = [_page_value(stand.token, number, page) for number, page in self._fold.numbered_pages]
        leaf = self._leaf(stand, [count_parts(len(value.payload)) for value in pages])
        horizon = self._contents.forgotten.next_horizon(records)
        manifest, pending, bases = self._manifest(stand, leaf, horizon), self._pending(commit), self._bases(records)
        pins = tuple(sorted({page for pages in bases.values() for page in pages}))
        segment = Segment(header, commit.attempt, manifest, pending, pins, tuple(records))
        root = Value(Kind.SEGMENT, segment_name(stand), encode_segment(segment))
        leaves = [Value(Kind.LEAF, leaf.row.name, encode_leaf(leaf.whole))] if leaf is not None else []
        row = WindowRow(root.name, count_parts(len(root.payload)), 0)
        # The segment goes first: by what it names, an opener can clear away what a crash left behind.
        return Prepared(stand, (root, *pages, *leaves), segment, row, len(root.payload), bases, self._fold, leaf)

    def _leaf(self, stand: Stand, parts: Sequence[int]) -> NewLeaf | None:
        fold, archive = self._fold, self._contents.archive
        pages = [(page.records, count) for page, count in zip(fold.pages, parts, strict=True)]
        end = leaf_of(fold.first_page, pages, fold.woken, fold.dead)
        if end.says_nothing:
            return None
        begun = archive.find_open_leaf(fold.tail, self._full_leaf_bytes)
        whole = begun.leaf.followed_by(end) if begun is not None else end
        row = LeafRow(leaf_name(stand), count_parts(len(encode_leaf(whole))))
        return NewLeaf(row, whole, end, begun.row if begun is not None else None)

    def _manifest(self, stand: Stand, leaf: NewLeaf | None, horizon: Horizon) -> Manifest:
        fold, archive = self._fold, self._contents.archive
        leaves = archive.leaf_rows(fold.tail)
        if leaf is not None:
            leaves = (*leaves[: -1 if leaf.replaced else None], leaf.row)
        return Manifest(
            self._contents.window.rows(fold.progress),
            leaves,
            archive.origins(fold.tail, stand.token if fold.pages else None),
            fold.tail,
            fold.first_page + len(fold.pages),
            (*self._contents.garbage, *self._superseded(leaf)),
            horizon,
        )

    def _superseded(self, leaf: NewLeaf | None) -> list[str]:
        """The names of what is needed no more once this commit counts."""
        contents, fold = self._contents, self._fold
        rows: list[WindowRow | LeafRow] = [*contents.window.left_behind(fold.progress), *contents.archive.left_behind(fold.tail)]
        if not contents.has_root_changes:
            rows.append(contents.root)
        if leaf is not None and leaf.replaced is not None:
            rows.append(leaf.replaced)
        names = [part for row in rows for part in part_names(row.name, row.parts)]
        for page in range(contents.archive.tail, fold.tail):
            names += part_names(page_name(contents.archive.writer(page), page), contents.archive.row(page).parts)
        return names

    def _pending(self, commit: Commit) -> tuple[tuple[int, bytes], ...]:
        pending = self._contents.pending | {each.number: each.body for each in commit.added}
        return tuple(sorted((number, body) for number, body in pending.items() if number > commit.published))

    def _bases(self, records: Sequence[UnitRecord]) -> dict[str, Sequence[int]]:
        """The pages from which the changes go on, of those units of which the window does not know them."""
        fold, contents = self._fold, self._contents
        moved = fold.pages_of_units()
        bases: dict[str, Sequence[int]] = {}
        for unit in (record.unit for record in records):
            if unit in fold.units:
                bases[unit] = (moved[unit],) if unit in moved else ()
            elif contents.window.find_bases(unit) is None:
                bases[unit] = [page for page in contents.find_bases(unit) if page >= fold.tail]
        return bases


def take_up(contents: Contents, prepared: Prepared) -> None:
    """The commit counts: bring what is known of the partition up to it."""
    fold, segment, archive = prepared.fold, prepared.segment, contents.archive
    contents.window.fold(fold.units, fold.progress)
    archive.give_up(fold.tail, segment.manifest.origins)
    if prepared.leaf is not None:
        archive.add(prepared.leaf.row, prepared.leaf.whole, prepared.leaf.end)
    archive.pin(segment.pins)
    archive.tidy()
    contents.forget_found()
    if segment.changes:
        contents.window.add(prepared.root, segment.changes, prepared.size)
        contents.window.note_bases(prepared.bases)
    take_up_changes(contents, segment.changes)
    assert segment.manifest.horizon is not None
    contents.forgotten.take_up(segment.manifest.horizon, segment.changes)
    contents.header, contents.attempt = segment.header, segment.attempt
    contents.root, contents.has_root_changes = prepared.root, bool(segment.changes)
    contents.pending = dict(segment.pending)
    contents.garbage = list(segment.manifest.garbage)


def _page_value(token: int, number: int, page: Page) -> Value:
    return Value(Kind.PAGE, page_name(token, number), encode_page(page))
