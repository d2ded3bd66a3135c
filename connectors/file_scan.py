"""The complete lines of a file as it stands, for whoever goes through it once."""

import os
from collections.abc import Iterator
from pathlib import Path

from connectors.file_errors import translated
from connectors.file_line_reader import FoundLine, LineReader
from connectors.file_operations import FileOperations

LONGEST_LINE_BYTES = 256 * 1024 * 1024


def scan(path: Path, files: FileOperations, start: int = 0) -> Iterator[FoundLine]:
    """Line by line from `start`, which is a line's start, up to where the file ended when this began; none of a missing file.

    A line without its end is left out. Of one beyond `LONGEST_LINE_BYTES` only the beginning is there, and it is `cut`.

    Raises:
        TransportRefused, TransportUnavailable: It cannot be read.
    """
    with translated(path):
        try:
            descriptor = files.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            size = os.fstat(descriptor).st_size
            reader = LineReader(lambda length, offset: files.read(descriptor, length, offset), start, LONGEST_LINE_BYTES)
            while (line := reader.next_line()) or reader.fill(size):
                if line is not None:
                    yield line
        finally:
            os.close(descriptor)
