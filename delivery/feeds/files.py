"""Notifications from the service's own output: its file, and those that were rotated out of it."""

from collections import Counter
from collections.abc import Mapping
from hashlib import sha256
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from connectors.files.line_reader import FoundLine
from connectors.files.operations import FileOperations
from connectors.files.rotated_names import find_rotated
from connectors.files.scan import scan
from connectors.line_format import Defect, decode_line
from delivery.core.rows import Item
from delivery.feeds.port import MOST_BYTES, make_item, select_items
from delivery.ledger.intake import Portion
from delivery.settings import Select

_TRIES = 5
_SETTLED_SECONDS = 2.0
"""A directory that has not changed for so long has another instant after its next change: file systems count in steps."""


class _File(NamedTuple):
    """A file as it was listed. `found` is device, inode, size and change: with all of them it is no other one."""

    path: Path
    found: tuple[int, int, int, int] | None

    @property
    def inode(self) -> tuple[int, ...] | None:
        """What stays the same when the file is renamed or grows."""
        return None if self.found is None else self.found[:2]


class FileFeed:
    """Reads the output at `path` behind its rotated files. A part of the feed is a file, known by a hash of its first line.

    So its name may change. A second file with the same first line is another part. A last line without its end is not there yet.
    A rotated file is not written any more: it is opened only if it was not read to its end.
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

    def read(self, positions: Mapping[str, int], most: int) -> Portion:
        for _ in range(_TRIES):
            files = self._list()
            portion = self._read(files, positions, most)
            # A file that was rotated meanwhile may have been read under the name of another one, or behind it.
            if [each.inode for each in files] == [each.inode for each in self._list()]:
                return portion
        return Portion([], {})

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

    def _read(self, files: list[_File], positions: Mapping[str, int], most: int) -> Portion:
        items: list[Item] = []
        ends: dict[str, int] = {}
        seen = Counter[str]()
        parts = set[str]()
        size = 0
        for each in files:
            identity = self._identity(each, is_rotated=each is not files[-1])
            if identity is None:
                continue
            seen[identity] += 1
            part = identity if seen[identity] == 1 else f"{identity}#{seen[identity]}"
            parts.add(part)
            at = positions.get(part, 0)
            if each.found is not None and at >= each.found[2] and each is not files[-1]:
                continue
            for line in islice(scan(each.path, self._files, at), most - len(items)):
                items.append(item_of(line, f"{part}@{line.start}"))
                ends[part] = at = end_of(line)
                size += len(line.content)
                if size >= MOST_BYTES:
                    break
            if len(items) >= most or size >= MOST_BYTES:
                return self._portion(items, ends, None)
        return self._portion(items, ends, frozenset(positions) - parts)

    def _portion(self, items: list[Item], ends: dict[str, int], gone: frozenset[str] | None) -> Portion:
        selected = select_items(items, self._select)
        return Portion(selected, ends, len(items) - len(selected), is_end=gone is not None, gone=gone)

    def _identity(self, file: _File, *, is_rotated: bool) -> str | None:
        known = self._identities.get(file.found) if is_rotated and file.found is not None else None
        if known is not None:
            return known
        first = next(scan(file.path, self._files), None)
        identity = None if first is None else sha256(first.content).hexdigest()[:32]
        if is_rotated and file.found is not None and identity is not None:
            self._identities[file.found] = identity
        return identity


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
    return make_item(decoded.key, decoded.value, decoded.headers, position)
