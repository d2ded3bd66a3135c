"""A lookup's table: keys and values in LMDB files that lie in memory once for all processes of the machine."""

from collections.abc import Callable, Sequence
from pathlib import Path
from zlib import crc32

import lmdb

from enrichment.errors import ReleaseRefused

LONGEST_KEY_BYTES = 511
"""Of LMDB."""


class LookupTable:
    """Finds values by key, in any thread but one at a time. Opening takes no longer for a large table than for a small one.

    Not to be asked after `close`, nor before its files were found whole: LMDB trusts what it maps.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        """Raises ReleaseRefused if one of the files, at least one, cannot be opened."""
        self._environments: list[lmdb.Environment] = []
        self._gets: list[Callable[[bytes], bytes | None]] = []
        try:
            for file in files:
                self._open(file)
        except lmdb.Error as error:
            self.close()
            raise ReleaseRefused(file, f"cannot be opened: {error}") from error
        self._count = len(files)
        self._only = self._gets[0] if self._count == 1 else None

    def _open(self, file: Path) -> None:
        """Nothing ever writes to it, so it needs no locks; look-ups hit it at random, so the kernel should not read ahead."""
        environment = lmdb.open(str(file), subdir=False, readonly=True, create=False, lock=False, readahead=False)
        self._environments.append(environment)
        self._gets.append(environment.begin().get)

    def find(self, key: bytes) -> bytes | None:
        if not 0 < len(key) <= LONGEST_KEY_BYTES:
            return None
        if self._only is not None:
            return self._only(key)
        return self._gets[crc32(key) % self._count](key)

    def close(self) -> None:
        self._gets.clear()
        self._only = None
        for each in self._environments:
            each.close()
        self._environments.clear()
