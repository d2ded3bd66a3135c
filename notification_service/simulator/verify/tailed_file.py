"""Reads a growing file as `tail -F` does, and the files rotated out of it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from guardian.ports import TransportRefused
from notification_service.connectors.files.rotated_names import Rotated, find_rotated


class TailedFile:
    """Returns each complete line once, those of rotated files first.

    The file may be missing at first, and may be replaced any number of times between two looks.

    Raises:
        TransportRefused: The file cannot be read, or is shorter than what was read of it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO | None = None
        self._offset = 0
        # The highest number of the files rotated before the open one.
        self._number = 0

    def lines(self, most: int) -> Iterator[bytes]:
        """Yield up to `most` lines, without newlines; fewer only if there are no more now."""
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
        """Return the next line. The open file is read to its end before the one that replaced it."""
        while True:
            if self._file is None and not self._open_next():
                return None
            assert self._file is not None
            line = self._read_line(self._file)
            if line is not None or not self._is_replaced(self._file):
                return line
            # The writer may have appended until the replacement.
            line = self._read_line(self._file)
            if line is not None or not self._open_next():
                return line

    def _read_line(self, file: BinaryIO) -> bytes | None:
        line = file.readline()
        if line.endswith(b"\n"):
            self._offset += len(line)
            return line[:-1]
        # The rest of the line may follow.
        file.seek(self._offset)
        return None

    def _open_next(self) -> bool:
        """Open the next file: the first rotated behind the open one, else the current one unless it is being rotated."""
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
            # Not earlier: while the old file is open, no other file can get its inode.
            self.close()
            self._file, self._offset = file, 0
            return True

    def _rotated_behind(self, file: BinaryIO | None) -> list[Rotated]:
        """Return the files rotated after `file`, in order. If `file` was rotated itself, note its number."""
        rotated = find_rotated(self.path, after=self._number)
        own = next((each.number for each in rotated if file is not None and _is(each.path, file)), 0)
        self._number = max(self._number, own)
        return [each for each in rotated if each.number > own]

    def _is_replaced(self, file: BinaryIO) -> bool:
        status = os.fstat(file.fileno())
        if status.st_size < self._offset:
            raise TransportRefused(str(self.path), f"it has {status.st_size} bytes, but {self._offset} were read: it was cut")
        return self.path.exists() and not _is(self.path, file)


def _is(path: Path, file: BinaryIO) -> bool:
    """Return whether the path names this open file."""
    try:
        named, opened = path.stat(), os.fstat(file.fileno())
    except FileNotFoundError:
        return False
    return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)
