"""Notifications from the service's own output: its file, and those that were rotated out of it."""

from collections import Counter
from collections.abc import Iterator, Mapping
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from connectors.files.lasting_length import Written, find_written
from connectors.files.line_reader import FoundLine
from connectors.files.operations import FileOperations
from connectors.files.rotated_names import find_rotated
from connectors.files.scan import scan
from connectors.line_format import Defect, decode_line
from delivery.core.rows import Item
from delivery.feeds.port import MOST_BYTES, make_item, select_items
from delivery.ledger.intake import ACCEPTED, Portion
from delivery.settings import Select

_TRIES = 5
_ACCOUNTED = "accounted"
"""The part whose position is how many of all bytes that were written the job has read, or need not read."""


class _End(NamedTuple):
    """From where to where a file was read, which is this part of the feed."""

    path: Path
    part: str
    began: int
    at: int


class FileFeed:
    """Reads the output at `path` behind its rotated files. A part of the feed is a file, known by a hash of its first line.

    So its name may change. A second file with the same first line is another part. A last line without its end is not there yet.

    What went before it was read is missing. `positions.json` beside the output knows how much was written in all, also while
    no feed looks. At the first look nothing is missing: what went before the job began was not for it.
    """

    def __init__(self, path: Path, files: FileOperations, select: Select) -> None:
        self._path = path
        self._files = files
        self._select = select

    def read(self, positions: Mapping[str, int], most: int) -> Portion:
        for _ in range(_TRIES):
            paths = output_files(self._path)
            before = [inode_of(path) for path in paths]
            # Before the files: all that it counts is in them, or has gone.
            written = self._find_written()
            portion, ends = self._read(paths, positions, most)
            # A file that was rotated meanwhile may have been read under the name of another one, or behind it.
            if before == [inode_of(path) for path in output_files(self._path)]:
                return self._with_missing(portion, positions, written, paths, ends)
        return Portion([], {})

    def find_parts(self) -> list[str]:
        """Return the parts that are there now."""
        return [part for _, part in self._parts(output_files(self._path))]

    def close(self) -> None:
        """Nothing is kept open."""

    def _read(self, paths: list[Path], positions: Mapping[str, int], most: int) -> tuple[Portion, list[_End]]:
        """Return what is there, and where each file was read to, as far as they were looked at."""
        items: list[Item] = []
        ends: list[_End] = []
        size = 0
        for path, part in self._parts(paths):
            began = at = positions.get(part, 0)
            for line in islice(scan(path, self._files, at), most - len(items)):
                items.append(item_of(line, f"{part}@{line.start}"))
                at, size = end_of(line), size + len(line.content)
                if size >= MOST_BYTES:
                    break
            ends.append(_End(path, part, began, at))
            if len(items) >= most or size >= MOST_BYTES:
                return self._portion(items, ends, is_end=False), ends
        return self._portion(items, ends, is_end=True), ends

    def _portion(self, items: list[Item], ends: list[_End], *, is_end: bool) -> Portion:
        selected = select_items(items, self._select)
        moved = {each.part: each.at for each in ends if each.at > each.began}
        return Portion(selected, moved, len(items) - len(selected), is_end)

    def _parts(self, paths: list[Path]) -> Iterator[tuple[Path, str]]:
        """Yield the files that have a line, each with its part."""
        seen = Counter[str]()
        for path in paths:
            identity = self._identity(path)
            if identity is not None:
                seen[identity] += 1
                yield path, identity if seen[identity] == 1 else f"{identity}#{seen[identity]}"

    def _find_written(self) -> Written | None:
        return find_written(self._path.with_name("positions.json"), self._path.name)

    def _with_missing(
        self, portion: Portion, positions: Mapping[str, int], written: Written | None, paths: list[Path], ends: list[_End]
    ) -> Portion:
        """Compare what was written with what was read, when all that is there was read."""
        accounted = positions.get(_ACCOUNTED)
        if accounted is None:
            accounted = self._begin_account(positions, written or Written(0, 0), paths)
        accounted += positions.get(ACCEPTED, 0) + sum(each.at - each.began for each in ends)
        missing = None
        if portion.is_end and written is not None:
            # Lines behind the length are written, too: they only are not noted yet.
            present = next((each.at for each in ends if each.path == self._path), 0)
            missing = written.before + max(written.length, present) - accounted
        if missing and (again := self._find_written()) is not None and again.before != written.before:  # type: ignore[union-attr]
            missing = None  # A file has ended meanwhile: the next look knows how long it was.
        if missing is not None and missing < 0:  # A file was put there, or the positions were taken away.
            accounted, missing = accounted + missing, 0
        noted = {_ACCOUNTED: accounted} | ({ACCEPTED: 0} if positions.get(ACCEPTED) else {})
        changed = {part: at for part, at in noted.items() if at != positions.get(part)}
        lacks = f"{missing} bytes of {self._path}, which went before they were read" if missing else None
        return replace(portion, positions={**portion.positions, **changed}, missing=missing, lacks=lacks)

    def _begin_account(self, positions: Mapping[str, int], written: Written, paths: list[Path]) -> int:
        """Return how many of the bytes that were written are not there to be read any more, or were read."""
        unread, present = 0, 0
        for path, part in self._parts(paths):
            at, size = positions.get(part, 0), path.stat().st_size
            if path == self._path:
                present, size = at, min(size, written.length)
            unread += max(0, size - at)
        return written.before + max(written.length, present) - unread

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
