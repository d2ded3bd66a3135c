"""Reads the complete lines of a file as it is now, once."""

import os
from collections.abc import Iterator
from pathlib import Path

from notification_service.connectors.files.line_reader import FoundLine, LineReader
from notification_service.connectors.files.operations import FileOperations, translated
from notification_service.connectors.files.rotated_names import find_rotated

LONGEST_LINE_BYTES = 256 * 1024 * 1024


def scan(path: Path, files: FileOperations, start: int = 0, *, takes_unended: bool = False) -> Iterator[FoundLine]:
    """Yield the lines from `start`, the start of a line, to the end that the file had at the call; none for a missing file.

    A last line without its end is left out, unless `takes_unended`. A line beyond `LONGEST_LINE_BYTES` is `cut`: only its
    beginning is there.

    Raises:
        TransportRefused, TransportUnavailable: The file cannot be read.
    """
    with translated(path):
        descriptor = _find_opened(path, files)
        if descriptor is not None:
            try:
                yield from _lines(descriptor, files, start, takes_unended=takes_unended)
            finally:
                os.close(descriptor)


def scan_output(path: Path, files: FileOperations) -> Iterator[tuple[Path, FoundLine]]:
    """Yield the lines of an output and of all files rotated out of it, oldest first, each with its file.

    Lines that are appended during the scan may be missing. Existing lines are all included, even if the service rotates the
    output meanwhile.
    """
    with translated(path):
        # Opened first: a file that is rotated from now on is read through this descriptor, and only once.
        descriptor = _find_opened(path, files)
        try:
            opened = None if descriptor is None else os.fstat(descriptor)
            for each in find_rotated(path):
                if opened is not None and _is_same(each.path, opened):
                    break
                yield from ((each.path, line) for line in scan(each.path, files))
            if descriptor is not None:
                yield from ((path, line) for line in _lines(descriptor, files, 0))
        finally:
            if descriptor is not None:
                os.close(descriptor)


def _find_opened(path: Path, files: FileOperations) -> int | None:
    try:
        return files.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None


def _lines(descriptor: int, files: FileOperations, start: int, *, takes_unended: bool = False) -> Iterator[FoundLine]:
    size = os.fstat(descriptor).st_size
    reader = LineReader(lambda length, offset: files.read(descriptor, length, offset), start, LONGEST_LINE_BYTES)
    while (line := reader.next_line()) or reader.fill(size):
        if line is not None:
            yield line
    if takes_unended and (remainder := reader.remainder()) is not None:
        yield remainder


def _is_same(path: Path, opened: os.stat_result) -> bool:
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)
