"""Notifications from the service's own output: its file, and those that were rotated out of it."""

from collections import Counter
from collections.abc import Mapping
from hashlib import sha256
from itertools import islice
from pathlib import Path

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


class FileFeed:
    """Reads the output at `path` behind its rotated files. A part of the feed is a file, known by a hash of its first line.

    So its name may change. A second file with the same first line is another part. A last line without its end is not there yet.
    """

    def __init__(self, path: Path, files: FileOperations, select: Select) -> None:
        self._path = path
        self._files = files
        self._select = select

    def read(self, positions: Mapping[str, int], most: int) -> Portion:
        for _ in range(_TRIES):
            paths = output_files(self._path)
            before = [inode_of(path) for path in paths]
            portion = self._read(paths, positions, most)
            # A file that was rotated meanwhile may have been read under the name of another one, or behind it.
            if before == [inode_of(path) for path in output_files(self._path)]:
                return portion
        return Portion([], {})

    def close(self) -> None:
        """Nothing is kept open."""

    def _read(self, paths: list[Path], positions: Mapping[str, int], most: int) -> Portion:
        items: list[Item] = []
        ends: dict[str, int] = {}
        seen = Counter[str]()
        size = 0
        for path in paths:
            identity = self._identity(path)
            if identity is None:
                continue
            seen[identity] += 1
            part = identity if seen[identity] == 1 else f"{identity}#{seen[identity]}"
            at = positions.get(part, 0)
            for line in islice(scan(path, self._files, at), most - len(items)):
                items.append(item_of(line, f"{part}@{line.start}"))
                ends[part] = at = end_of(line)
                size += len(line.content)
                if size >= MOST_BYTES:
                    break
            if len(items) >= most or size >= MOST_BYTES:
                return self._portion(items, ends, is_end=False)
        return self._portion(items, ends, is_end=True)

    def _portion(self, items: list[Item], ends: dict[str, int], *, is_end: bool) -> Portion:
        selected = select_items(items, self._select)
        return Portion(selected, ends, len(items) - len(selected), is_end)

    def _identity(self, path: Path) -> str | None:
        first = next(scan(path, self._files), None)
        return None if first is None else sha256(first.content).hexdigest()[:32]


def end_of(line: FoundLine) -> int:
    """Return where the next line begins."""
    return line.start + (line.cut.length if line.cut else len(line.content)) + 1


def inode_of(path: Path) -> tuple[int, int] | None:
    """Return what stays the same when the file is renamed; None for a missing file."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def output_files(path: Path) -> list[Path]:
    """Return the files rotated out of an output, the oldest first, and the output."""
    return [*(each.path for each in find_rotated(path)), path]


def item_of(line: FoundLine, position: str) -> Item:
    """Return a line as an item. It has a `defect` if it is no record."""
    if line.cut is not None:
        return Item(position, "", b"", (), position, defect=f"a line of {line.cut.length} bytes is too long")
    decoded = decode_line(line.content)
    if isinstance(decoded, Defect):
        return Item(position, "", line.content, (), position, defect=f"the line is no record: {decoded.problem}")
    return make_item(decoded.key, decoded.value, decoded.headers, position)
