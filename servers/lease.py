"""Servers that are stopped when the processes that use them have ended, even if these were killed."""

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from servers.process import Process
from servers.server import remove_all

_SUFFIX = ".lease"
_CHECKOUT = Path(__file__).resolve().parent.parent


@contextmanager
def leased(directory: Path) -> Iterator[Path]:
    """Yield `directory`. Its servers are stopped, and it is removed, when the last process has exited this context or ended.

    A lease is a shared file lock, which the kernel tracks. Each holder starts a keeper, a process that waits for the exclusive
    lock. The first keeper that gets it clears the directory; the others find nothing to do.
    """
    descriptor = _shared_lock(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        environment = os.environ | {"PYTHONPATH": str(_CHECKOUT)}
        command = [sys.executable, "-m", "servers.lease", str(directory)]
        Process.launch(command, directory / "keeper.log", environment)
        yield directory
    finally:
        os.close(descriptor)


def keep(directory: Path) -> None:
    """Wait until no process holds a lease on the directory, and clear it."""
    _clear_away(directory, fcntl.LOCK_EX)


def clear_leftovers(parent: Path) -> None:
    """Clear the directories in `parent` without a lease holder: their keepers were killed, or the machine crashed."""
    for path in parent.glob(f"*{_SUFFIX}"):
        with suppress(BlockingIOError):
            _clear_away(path.with_suffix(""), fcntl.LOCK_EX | fcntl.LOCK_NB)


def _clear_away(directory: Path, mode: int) -> None:
    path = _lease_of(directory)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(descriptor, mode)
        if _is_at(descriptor, path):
            remove_all(directory)
            path.unlink()
    finally:
        os.close(descriptor)


def _shared_lock(directory: Path) -> int:
    """Return a descriptor with the shared lock. Waits while the directory is being cleared, and starts a new one."""
    path = _lease_of(directory)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        if _is_at(descriptor, path):
            return descriptor
        os.close(descriptor)


def _lease_of(directory: Path) -> Path:
    return directory.with_name(directory.name + _SUFFIX)


def _is_at(descriptor: int, path: Path) -> bool:
    """Return whether the locked file still has this name; clearing a directory removes the file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
