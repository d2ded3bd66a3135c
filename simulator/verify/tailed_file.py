"""Reads a file that grows, as `tail -F` does, and what was rotated out of it too."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from connectors.files.rotated_names import Rotated, find_rotated
from connectors.port import TransportRefused


class TailedFile:
    """Hands out each complete line once, those of rotated files first. The file may not be there yet, and others may take its
    place, several between two looks.

    Raises:
        TransportRefused: The file cannot be read, or became shorter than what was read of it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO | None = None
        self._offset = 0
        # The highest number of those that were rotated before the file that is open.
        self._number = 0

    def lines(self, most: int) -> Iterator[bytes]:
        """Up to `most` lines that are there now, without their newlines; fewer only where no more is there."""
        for _ in range(most):
            try:
                line = self._next_line()
            except OSError as error:
                raise TransportRefused(str(self.path), f"{error.strerror or error}") from error
            if line is None:
                return
            yield line

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _next_line(self) -> bytes | None:
        """The file that was opened is read to its end before the one that took its place."""
        while True:
            if self._file is None and not self._open_next():
                return None
            assert self._file is not None
            line = self._read_line(self._file)
            if line is not None or not self._is_replaced(self._file):
                return line
            # It was written to until it was replaced.
            line = self._read_line(self._file)
            if line is not None or not self._open_next():
                return line

    def _read_line(self, file: BinaryIO) -> bytes | None:
        line = file.readline()
        if line.endswith(b"\n"):
            self._offset += len(line)
            return line[:-1]
        # The rest of it may follow.
        file.seek(self._offset)
        return None

    def _open_next(self) -> bool:
        """What was rotated behind the open file, else the file itself, as long as it is not rotated just then."""
        while True:
            behind = self._rotated_behind(self._file)
            try:
                file = (behind[0].path if behind else self.path).open("rb")
            except FileNotFoundError:
                if behind:
                    continue  # It was deleted meanwhile.
                return False
            meanwhile = [] if behind else self._rotated_behind(self._file)
            if meanwhile and not _is(meanwhile[0].path, file):
                file.close()
                continue
            self._number = behind[0].number if behind else self._number
            # Not sooner: while it is open no other file can have its identity.
            self.close()
            self._file, self._offset = file, 0
            return True

    def _rotated_behind(self, file: BinaryIO | None) -> list[Rotated]:
        """Those written after `file`, in order. Where `file` itself is among the rotated, it counts no more from now on."""
        rotated = find_rotated(self.path, after=self._number)
        own = next((each.number for each in rotated if file is not None and _is(each.path, file)), 0)
        self._number = max(self._number, own)
        return [each for each in rotated if each.number > own]

    def _is_replaced(self, file: BinaryIO) -> bool:
        status = os.fstat(file.fileno())
        if status.st_size < self._offset:
            raise TransportRefused(str(self.path), f"it has {status.st_size} bytes, {self._offset} were read: it was cut")
        return self.path.exists() and not _is(self.path, file)


def _is(path: Path, file: BinaryIO) -> bool:
    """Whether this is the name of that file."""
    try:
        named, opened = path.stat(), os.fstat(file.fileno())
    except FileNotFoundError:
        return False
    return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)
