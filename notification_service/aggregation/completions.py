"""Reads what stores have completed, from outside of their workers: in the order of writing, from any place, and up to the end."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from notification_service.connectors.files.operations import FileOperations, find_end_of_lines
from notification_service.connectors.files.scan import scan
from notification_service.connectors.line_format import Defect, decode_line
from resequencer.record import Headers

Place = Mapping[int, int]
"""By partition the next offset to read. Of a file, which has the partition 0 alone, it counts bytes."""

ONLY = 0
_BYTES_AT_ONCE = 1 << 20


class Completed(NamedTuple):
    """A record of a completion. The next one of its partition is at `next_offset` or behind it.

    A log without values leaves out key and value: who needs only the headers keeps no more in memory.
    """

    partition: int
    offset: int
    next_offset: int
    headers: Headers
    key: bytes | None = None
    value: bytes = b""


class CompletionsLog(Protocol):
    """Used by one thread. Any call may raise the errors of a transport (guardian/ports.py)."""

    def begins(self) -> Place:
        """Return the first offset of each partition that still exists."""
        ...

    def ends(self) -> Place:
        """Return the offsets behind what is decided now."""
        ...

    def read(self, at: Place, limit: int) -> tuple[list[Completed], Place]:
        """Return about `limit` records of these partitions from these offsets on, and the place behind them.

        Fewer if they are long, none after a moment without any. A partition whose offset is gone is read from the first that
        exists.
        """
        ...

    def close(self) -> None: ...


class FileCompletions:
    """Reads the file of completions, which is never rotated. A last line without its end is not there yet."""

    def __init__(self, path: Path, files: FileOperations, *, has_values: bool = False) -> None:
        self._path = path
        self._files = files
        self._has_values = has_values

    def begins(self) -> Place:
        return {ONLY: 0}

    def ends(self) -> Place:
        try:
            descriptor = self._files.open(self._path, os.O_RDONLY)
        except FileNotFoundError:
            return {ONLY: 0}
        try:
            return {ONLY: find_end_of_lines(self._files, descriptor, os.fstat(descriptor).st_size)}
        finally:
            os.close(descriptor)

    def read(self, at: Place, limit: int) -> tuple[list[Completed], Place]:
        found: list[Completed] = []
        offset, size = at.get(ONLY, 0), 0
        if not self._path.exists() or self._path.stat().st_size < offset:
            return found, {ONLY: offset}
        for line in scan(self._path, self._files, offset):
            length = line.cut.length if line.cut is not None else len(line.content)
            following = line.start + length + 1
            decoded = None if line.cut is not None else decode_line(line.content)
            if decoded is not None and not isinstance(decoded, Defect):
                valued = (decoded.key, decoded.value or b"") if self._has_values else ()
                found.append(Completed(ONLY, line.start, following, decoded.headers, *valued))
            offset, size = following, size + length
            if len(found) >= limit or (self._has_values and size >= _BYTES_AT_ONCE):
                break
        return found, {ONLY: offset}

    def close(self) -> None:
        """Nothing is kept open."""
