"""Notifications from the service's own output: its file, and those that were rotated out of it."""

import os
from collections.abc import Iterator, Mapping
from hashlib import sha256
from itertools import count
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from msgspec.structs import replace

from guardian.ports import TransportUnavailable
from notification_service.connectors.files.line_reader import FoundLine
from notification_service.connectors.files.operations import FileOperations, translated
from notification_service.connectors.files.output import Written, find_written
from notification_service.connectors.files.rotated_names import find_rotated
from notification_service.connectors.files.scan import scan
from notification_service.connectors.line_format import Defect, decode_line
from notification_service.delivery.core.jobs import Item
from notification_service.delivery.feed import MAX_BYTES, make_item, select_items
from notification_service.delivery.ledger.intake import ACCEPTED, Portion
from notification_service.delivery.settings import Select

_TRIES = 5
_ACCOUNTED = "accounted"
"""The part whose position is how many of all bytes that were written the job has read, or need not read."""

_NO_FILES = frozenset((_ACCOUNTED, ACCEPTED))
"""The parts that are no files, and so are never missing."""

_SETTLED_SECONDS = 2.0
"""A directory that has not changed for so long has another instant after its next change: file systems count in steps."""


_MARK = "~"
"""Behind a part's name: the part whose position is a mark of the bytes before the position of the first one.

It holds 31 bits of that position and 32 of a hash. One of another position has no meaning: an older version moved the position.
"""

_MARKED_BYTES, _LOW_BITS = 4096, 2**31 - 1


class _File(NamedTuple):
    """A file as it was listed. `found` is device, inode, size and change: with all of them it is no other one."""

    path: Path
    found: tuple[int, int, int, int] | None

    @property
    def inode(self) -> tuple[int, ...] | None:
        """What stays the same when the file is renamed or grows."""
        return None if self.found is None else self.found[:2]

    @property
    def size(self) -> int:
        return 0 if self.found is None else self.found[2]


class _End(NamedTuple):
    """From where to where a file was read, which is this part of the feed."""

    file: _File
    part: str
    began: int
    at: int


class _Part(NamedTuple):
    """A file that has a line, and the part that it is. `is_same`: it holds what was read of this part."""

    file: _File
    name: str
    is_same: bool


class FileFeed:
    """Reads the output at `path` behind its rotated files. A part of the feed is a file, known by a hash of its first line.

    So its name may change. A second file with the same first line is another part. A last line without its end is not there yet.
    A rotated file is not written any more: it is opened only if it was not read to its end.

    What went before it was read is missing. `positions.json` beside the output knows how much was written in all, also while
    no feed looks. At the first look nothing is missing: what went before the job began was not for it. Of the output no more is
    read than `positions.json` counts: what is behind may be cut off again after a power cut.

    With a position a hash of the bytes before it is kept. If other bytes stand there now, the output was set back, as by a
    restore, and what was read of it is not known: it counts as missing. When that is accepted it is read from its beginning.
    """

    def __init__(self, path: Path, files: FileOperations, select: Select) -> None:
        self._path = path
        self._files = files
        self._select = select
        self._rotated: list[_File] | None = None
        """The rotated files, as long as they are surely those of the directory; None: they are to be listed."""
        self._directory: tuple[int, ...] | None = None
        self._unchanged_since = 0.0
        self._identities: dict[tuple[int, ...], str] = {}
        self._seen_same: dict[str, tuple[object, int]] = {}
        """By part the file, and the position in it, that were compared last."""

    def read(self, positions: Mapping[str, int], limit: int) -> Portion:
        """As `Feed.read`.

        Raises:
            TransportUnavailable, TransportRefused: A file cannot be read, or a directory that was read is missing.
        """
        for _ in range(_TRIES):
            files = self._list()
            if self._directory is None and positions.keys() - _NO_FILES:
                raise TransportUnavailable(f"{self._path.parent}: is missing, though output in it was read: mount or restore it")
            # Before the files are read: all that it counts is in them, or was deleted.
            written = self._find_written()
            parts = list(self._parts(files, positions))
            differing = [each for each in parts if not each.is_same]
            portion, ends = (_differing(differing, positions), []) if differing else self._read(parts, positions, limit, written)
            # A file that was rotated meanwhile may have been read under the name of another one, or behind it.
            if [each.inode for each in files] == [each.inode for each in self._list()]:
                return portion if differing else self._with_missing(portion, positions, written, files, ends)
        return Portion([], {})

    def find_parts(self) -> list[str]:
        """Return the parts that are there now."""
        return [each.name for each in self._parts(self._list(), {})]

    def close(self) -> None:
        """Nothing is kept open."""

    def _list(self) -> list[_File]:
        """Return the files, the oldest first. In a directory that does not change only the output is looked at."""
        directory = _find_fact(self._path.parent)
        if directory is None or directory != self._directory:
            self._directory, self._unchanged_since, self._rotated = directory, monotonic(), None
        rotated = self._rotated
        if rotated is None:
            is_settled = directory is not None and monotonic() - self._unchanged_since >= _SETTLED_SECONDS
            rotated = [_File(each.path, _find_fact(each.path)) for each in find_rotated(self._path)]
            self._rotated = rotated if is_settled else None
            names = {each.found for each in rotated}
            self._identities = {found: identity for found, identity in self._identities.items() if found in names}
        return [*rotated, _File(self._path, _find_fact(self._path))]

    def _read(
        self, parts: list[_Part], positions: Mapping[str, int], limit: int, written: Written | None
    ) -> tuple[Portion, list[_End]]:
        """Return what is there, and where the output, and each file of which something was read, was read to."""
        items: list[Item] = []
        ends: list[_End] = []
        size = 0
        for each, part, _ in parts:
            began = at = positions.get(part, 0)
            if each.found is not None and at >= each.size and each.path != self._path:
                continue
            lasting = written.length if written is not None and each.path == self._path else each.size
            for line in scan(each.path, self._files, at):
                if end_of(line) > lasting:
                    break
                items.append(item_of(line, f"{part}@{line.start}"))
                at, size = end_of(line), size + len(line.content)
                if len(items) >= limit or size >= MAX_BYTES:
                    break
            ends.append(_End(each, part, began, at))
            if len(items) >= limit or size >= MAX_BYTES:
                return self._portion(items, ends, None), ends
        there = {name for each in parts for name in (each.name, each.name + _MARK)}
        return self._portion(items, ends, frozenset(positions) - there - _NO_FILES), ends

    def _portion(self, items: list[Item], ends: list[_End], gone: frozenset[str] | None) -> Portion:
        selected = select_items(items, self._select)
        moved = {each.part: each.at for each in ends if each.at > each.began}
        marks = {each.part + _MARK: self._mark(each.file.path, each.at) for each in ends if each.part in moved}
        return Portion(selected, moved | marks, len(items) - len(selected), is_end=gone is not None, gone=gone)

    def _parts(self, files: list[_File], positions: Mapping[str, int]) -> Iterator[_Part]:
        """Yield the files that have a line, each with its part: of those that begin alike, the one that was read of it."""
        taken: set[str] = set()
        for each in files:
            identity = self._identity(each)
            if identity is None:
                continue
            if identity in taken or identity not in positions or not self._compare(each, identity, positions):
                part = self._one_of_many(each, identity, positions, taken)
            else:
                part = _Part(each, identity, True)
            taken.add(part.name)
            yield part

    def _one_of_many(self, file: _File, identity: str, positions: Mapping[str, int], taken: set[str]) -> _Part:
        """Return the part of a file that begins like others, some of which may be deleted."""
        read = (name for name in positions if not name.endswith(_MARK) and name not in taken)
        alike = [name for name in read if name.partition("#")[0] == identity]
        same = next((name for name in alike if self._compare(file, name, positions)), None)
        if same is not None or alike:
            return _Part(file, same or alike[0], same is not None)
        names = (identity if number == 1 else f"{identity}#{number}" for number in count(1))
        return _Part(file, next(name for name in names if name not in taken), True)

    def _compare(self, file: _File, part: str, positions: Mapping[str, int]) -> bool:
        """Return whether a file holds before the position of a part what was read there."""
        at, mark = positions.get(part, 0), positions.get(part + _MARK)
        if mark is None or mark >> 32 != at & _LOW_BITS or at == 0 or self._seen_same.get(part) == (file.found, at):
            return True
        if at == file.size and file.path != self._path:
            return True  # It is not written any more, and was read.
        is_same = self._mark(file.path, at) == mark
        if is_same:
            self._seen_same[part] = (file.found, at)
        return is_same

    def _mark(self, path: Path, at: int) -> int:
        """Return the mark of the bytes before a position."""
        start = max(0, at - _MARKED_BYTES)
        with translated(path):
            try:
                descriptor = self._files.open(path, os.O_RDONLY)
            except FileNotFoundError:
                return 0  # It was rotated meanwhile, and what was read of it is not used.
            try:
                found = self._files.read(descriptor, at - start, start)
            finally:
                os.close(descriptor)
        return (at & _LOW_BITS) << 32 | int.from_bytes(sha256(found).digest()[:4])

    def _find_written(self) -> Written | None:
        return find_written(self._path.with_name("positions.json"), self._path.name)

    def _with_missing(
        self, portion: Portion, positions: Mapping[str, int], written: Written | None, files: list[_File], ends: list[_End]
    ) -> Portion:
        """Compare what was written with what was read, when all that is there was read."""
        accounted = positions.get(_ACCOUNTED)
        if accounted is None:
            accounted = self._begin_account(positions, written or Written(0, 0), files)
        accounted += positions.get(ACCEPTED, 0) + sum(each.at - each.began for each in ends)
        missing = None
        if portion.is_end and written is not None:
            # Lines behind the length are written, too: they only are not noted yet.
            present = next((each.at for each in ends if each.file.path == self._path), 0)
            missing = written.before + max(written.length, present) - accounted
        if missing and (again := self._find_written()) is not None and again.before != written.before:  # type: ignore[union-attr]
            missing = None  # A file has ended meanwhile: the next look knows how long it was.
        if missing is not None and missing < 0:  # A file was put there, or the positions were taken away.
            accounted, missing = accounted + missing, 0
        noted = {_ACCOUNTED: accounted} | ({ACCEPTED: 0} if positions.get(ACCEPTED) else {})
        changed = {part: at for part, at in noted.items() if at != positions.get(part)}
        lacks = f"{missing} bytes of {self._path}, which were removed before they were read" if missing else None
        return replace(portion, positions={**portion.positions, **changed}, missing=missing, lacks=lacks)

    def _begin_account(self, positions: Mapping[str, int], written: Written, files: list[_File]) -> int:
        """Return how many of the bytes that were written are not there to be read any more, or were read."""
        unread, present = 0, 0
        for each, part, _ in self._parts(files, positions):
            at, size = positions.get(part, 0), each.size
            if each.path == self._path:
                # It may have grown since it was listed.
                present, size = at, min(_File(self._path, _find_fact(self._path)).size, written.length)
            unread += max(0, size - at)
        return written.before + max(written.length, present) - unread

    def _identity(self, file: _File) -> str | None:
        kept = None if file.path == self._path else file.found
        if kept is not None and kept in self._identities:
            return self._identities[kept]
        first = next(scan(file.path, self._files), None)
        identity = None if first is None else sha256(first.content).hexdigest()[:32]
        if kept is not None and identity is not None:
            self._identities[kept] = identity
        return identity


def _differing(parts: list[_Part], positions: Mapping[str, int]) -> Portion:
    """Report that files do not hold any more what was read of them; begin them again when that was accepted.

    It is not the end: while they are not read, what was delivered of them must not be forgotten.
    """
    missing = sum(positions[each.name] for each in parts)
    if missing <= positions.get(ACCEPTED, 0):
        restarted = {name: 0 for each in parts for name in (each.name, each.name + _MARK)}
        return Portion([], {**restarted, ACCEPTED: 0}, missing=0)
    others = f" and {len(parts) - 1} more" if len(parts) > 1 else ""
    where = f"{parts[0].file.path} before position {positions[parts[0].name]}{others}"
    lacks = (
        f"{missing} bytes that were read: other ones stand in {where}. When their loss is accepted it is read from its beginning"
    )
    return Portion([], {}, missing=missing, lacks=lacks)


def _find_fact(path: Path) -> tuple[int, int, int, int] | None:
    """Return device, inode, size and change of a file; None for a missing one."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def end_of(line: FoundLine) -> int:
    """Return where the next line begins."""
    return line.start + (line.cut.length if line.cut else len(line.content)) + 1


def inode_of(path: Path) -> tuple[int, ...] | None:
    """Return what stays the same when the file is renamed; None for a missing file."""
    return _File(path, _find_fact(path)).inode


def item_of(line: FoundLine, position: str) -> Item:
    """Return a line as an item. It has a `defect` if it is no record."""
    if line.cut is not None:
        return Item(position, "", b"", (), position, defect=f"a line of {line.cut.length} bytes is too long")
    decoded = decode_line(line.content)
    if isinstance(decoded, Defect):
        return Item(position, "", line.content, (), position, defect=f"the line is no record: {decoded.problem}")
    return make_item(decoded.key, decoded.content, decoded.headers, position)
