"""Sees what the code under test makes durable."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch


@contextmanager
def noting_syncs() -> Iterator[list[str]]:
    """Yield the paths of the files and directories that are synced meanwhile, in their order."""
    synced: list[str] = []
    right = os.fsync

    def fsync(descriptor: int) -> None:
        right(descriptor)
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))

    with patch.object(os, "fsync", fsync):
        yield synced
