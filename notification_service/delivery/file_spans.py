"""Notifications from files as they were when a job was started, whatever they are called by now and whatever came behind."""

import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

import msgspec

from notification_service.connectors.files.operations import FileOperations, SystemFiles, find_end_of_lines
from notification_service.connectors.files.rotated_names import find_rotated
from notification_service.connectors.files.scan import scan
from notification_service.delivery.core.jobs import Item
from notification_service.delivery.feed import MAX_BYTES, select_items
from notification_service.delivery.file_feed import end_of, inode_of, item_of
from notification_service.delivery.ledger.intake import ACCEPTED, Portion
from notification_service.delivery.settings import Select

_COMPARED_BYTES = 65_536


class FileSpan(msgspec.Struct, frozen=True):
    """The first `size` bytes of a file. `mark` is a hash of their beginning and their end: the name of the file may change."""

    path: str
    size: int
    mark: str


def span_of(path: Path, *, is_written: bool) -> FileSpan:
    """Return what a file holds now. Of one that the service writes it is what ends with its last whole line.

    Raises:
        OSError: The file cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        size = find_end_of_lines(SystemFiles(), descriptor, size) if is_written else size
        return FileSpan(str(path.absolute()), size, _mark(descriptor, size))
    finally:
        os.close(descriptor)


class FileSpanFeed:
    """Reads spans of files one after the other, and ends with the last. A part of the feed is a span, by its mark."""

    def __init__(self, spans: Sequence[FileSpan], files: FileOperations, select: Select) -> None:
        self._files, self._select = files, select
        parts = [each.mark for each in spans]
        named = [f"{mark}#{parts[:number].count(mark) + 1}" for number, mark in enumerate(parts)]
        self._spans = {part.removesuffix("#1"): span for part, span in zip(named, spans, strict=True)}

    def read(self, positions: Mapping[str, int], limit: int) -> Portion:
        """As `Feed.read`.

        What is missing is a file that is not there any more, under its name or as one that was rotated out of it. Those behind it
        wait for it, until an operator accepts the loss.
        """
        remaining = [(part, span) for part, span in self._spans.items() if positions.get(part, 0) < span.size]
        if not remaining:
            return Portion([], {}, missing=0, is_end=True, seals=True)
        part, span = remaining[0]
        path = _find(span)
        if path is None:
            return _without(part, span, positions, is_last=len(remaining) == 1)
        before = inode_of(path)
        if not _holds(path, span):
            return Portion([], {})
        items, at = self._items(path, part, span, positions.get(part, 0), limit)
        if inode_of(path) != before:
            return Portion([], {})  # It was rotated meanwhile: what was read may be of another file.
        selected = select_items(items, self._select)
        is_end = at >= span.size and len(remaining) == 1
        moved = {part: at} | ({ACCEPTED: 0} if positions.get(ACCEPTED) else {})  # What is here was not accepted as lost.
        return Portion(selected, moved, len(items) - len(selected), is_end, seals=is_end, missing=0)

    def close(self) -> None:
        """Nothing is kept open."""

    def _items(self, path: Path, part: str, span: FileSpan, at: int, limit: int) -> tuple[list[Item], int]:
        items: list[Item] = []
        size = 0
        for line in scan(path, self._files, at, takes_unended=True):
            if line.start >= span.size:
                break
            items.append(item_of(line, f"{part}@{line.start}"))
            at, size = end_of(line), size + len(line.content)
            if len(items) >= limit or size >= MAX_BYTES:
                break
        return items, at


def _without(part: str, span: FileSpan, positions: Mapping[str, int], *, is_last: bool) -> Portion:
    """Report what is missing, or continue behind it if the loss was accepted."""
    missing, accepted = span.size - positions.get(part, 0), positions.get(ACCEPTED, 0)
    if missing <= accepted:
        return Portion([], {part: span.size, ACCEPTED: 0}, missing=0, is_end=is_last, seals=is_last)
    lacks = f"{missing} bytes of {span.path}, which is missing, or does not hold any more what it held when the job was started"
    return Portion([], {}, missing=missing, lacks=lacks, is_end=True)


def _find(span: FileSpan) -> Path | None:
    path = Path(span.path)
    for each in (path, *(rotated.path for rotated in find_rotated(path))):
        if _holds(each, span):
            return each
    return None


def _holds(path: Path, span: FileSpan) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return os.fstat(descriptor).st_size >= span.size and _mark(descriptor, span.size) == span.mark
    finally:
        os.close(descriptor)


def _mark(descriptor: int, size: int) -> str:
    length = min(size, _COMPARED_BYTES)
    beginning, end = os.pread(descriptor, length, 0), os.pread(descriptor, length, size - length)
    return sha256(b"%d:%b%b" % (size, beginning, end)).hexdigest()[:32]
