"""A directory for the files of a target, in memory if the machine has such a place: the disk is not tested."""

from pathlib import Path
from tempfile import TemporaryDirectory

_IN_MEMORY = Path("/dev/shm")


def scratch() -> "TemporaryDirectory[str]":
    return TemporaryDirectory(dir=_IN_MEMORY if _IN_MEMORY.is_dir() else None)
