"""A lookup's table: keys and values in LMDB files. All processes of the machine share one copy in memory."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from pathlib import Path
from threading import Lock
from zlib import crc32

import lmdb

from notification_service.lookups.shapes import LONGEST_KEY_BYTES, ReleaseRefused


class LookupTable:
    """Finds values by key, in any thread, but only one at a time. A large table opens as fast as a small one.

    Do not use it after `close`, nor before its files were verified, because LMDB does not check what it maps.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        """Open the files, at least one. Raises ReleaseRefused if one of them cannot be opened."""
        self._readings: list[lmdb.Transaction] = []
        self._gets: list[Callable[[bytes], bytes | None]] = []
        self._files: list[Path] = []
        try:
            for file in files:
                environment = _opened.open(file)
                self._files.append(file)
                reading = environment.begin()
                self._readings.append(reading)
                self._gets.append(reading.get)
        except lmdb.Error as error:
            self.close()
            raise ReleaseRefused(file, f"cannot be opened: {error}") from error
        self._count = len(files)
        self._only = self._gets[0] if self._count == 1 else None

    def find(self, key: bytes) -> bytes | None:
        if not 0 < len(key) <= LONGEST_KEY_BYTES:
            return None
        if self._only is not None:
            return self._only(key)
        return self._gets[crc32(key) % self._count](key)

    def rows(self, after: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Return the keys behind this one and their values, in the order of the keys."""
        return merge(*(_rows_of(each, after) for each in self._readings))

    def close(self) -> None:
        self._gets.clear()
        self._only = None
        for reading in self._readings:
            reading.abort()
        for file in self._files:
            _opened.close(file)
        self._readings.clear()
        self._files.clear()


def _rows_of(reading: lmdb.Transaction, after: bytes) -> Iterator[tuple[bytes, bytes]]:
    with reading.cursor() as cursor:
        # No key is empty, and the next possible key is the same with a zero byte.
        if cursor.set_range(after + b"\x00"):
            yield from ((bytes(key), bytes(value)) for key, value in cursor)


class _Opened:
    """The open files of this process. LMDB must not open a file twice, but a release in use may become current once more."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._environments: dict[Path, lmdb.Environment] = {}
        self._users: Counter[Path] = Counter()

    def open(self, file: Path) -> lmdb.Environment:
        """Open a file or share it. It is never written, so it needs no locks. Reads are random, so read-ahead is off."""
        with self._lock:
            if file not in self._environments:
                self._environments[file] = lmdb.open(
                    str(file), subdir=False, readonly=True, create=False, lock=False, readahead=False
                )
            self._users[file] += 1
            return self._environments[file]

    def close(self, file: Path) -> None:
        """Close a file. Call it once for each `open`."""
        with self._lock:
            self._users[file] -= 1
            if not self._users[file]:
                del self._users[file]
                self._environments.pop(file).close()


_opened = _Opened()
