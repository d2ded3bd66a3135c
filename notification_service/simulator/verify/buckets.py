"""Sorts lines into buckets by unit, so that a million units are compared a few thousand at a time."""

from collections.abc import Iterator
from contextlib import ExitStack
from tempfile import SpooledTemporaryFile
from types import TracebackType
from typing import Self
from zlib import crc32

_BUCKETS = 128
_SPOOLED_BYTES = 256 * 1024
"""A larger bucket goes to a temporary file, so at most 32 MB are in memory."""


class Buckets:
    """All lines of a unit are in one bucket and keep their order. A line must not contain a newline."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._files = [self._stack.enter_context(_spooled()) for _ in range(_BUCKETS)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def add(self, unit: str, line: bytes) -> None:
        self._files[crc32(unit.encode()) % _BUCKETS].write(line + b"\n")

    def each(self) -> Iterator[Iterator[bytes]]:
        """Yield the lines of each bucket, without newlines."""
        for file in self._files:
            file.seek(0)
            yield (line[:-1] for line in file)


def _spooled() -> SpooledTemporaryFile[bytes]:
    return SpooledTemporaryFile(max_size=_SPOOLED_BYTES)
