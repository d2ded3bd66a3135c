"""Reads a file that grows, as `tail -F` does."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from connectors.port import TransportRefused


class TailedFile:
    """Hands out each complete line once. The file may not be there yet, and another one may take its place.

    Raises:
        TransportRefused: The file cannot be read, or became shorter than what was read of it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO | None = None
        self._offset = 0

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
            if self._file is None and not self._open():
                return None
            assert self._file is not None
            line = self._read_line(self._file)
            if line is not None or not self._is_replaced(self._file):
                return line
            # It was written to until it was replaced.
            line = self._read_line(self._file)
            if line is not None:
                return line
            self.close()

    def _read_line(self, file: BinaryIO) -> bytes | None:
        line = file.readline()
        if line.endswith(b"\n"):
            self._offset += len(line)
            return line[:-1]
        # The rest of it may follow.
        file.seek(self._offset)
        return None

    def _open(self) -> bool:
        try:
            self._file = self.path.open("rb")
        except FileNotFoundError:
            return False
        self._offset = 0
        return True

    def _is_replaced(self, file: BinaryIO) -> bool:
        status = os.fstat(file.fileno())
        if status.st_size < self._offset:
            raise TransportRefused(str(self.path), f"it has {status.st_size} bytes, {self._offset} were read: it was cut")
        try:
            named = os.stat(self.path)
        except FileNotFoundError:
            return False
        return (named.st_dev, named.st_ino) != (status.st_dev, status.st_ino)
