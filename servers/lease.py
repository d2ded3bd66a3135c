"""Servers that end with those who use them, also when these were killed."""

import fcntl
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from servers.process import Process
from servers.server import stop_all

_SUFFIX = ".lease"
_CHECKOUT = Path(__file__).resolve().parent.parent


@contextmanager
def leased(directory: Path) -> Iterator[Path]:
    """`directory`, whose servers are stopped and which is removed when the last process has left this context or ended.

    A lease is a shared lock, which the kernel counts. Each holder starts a keeper, a process that waits for the lock to be
    free; the first one that gets it clears up, and the others find nothing to do.
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
    """Wait until nobody holds a lease on the directory, and clear it away."""
    _clear_away(directory, fcntl.LOCK_EX)


def clear_leftovers(parent: Path) -> None:
    """Clear away every directory in `parent` on which nobody holds a lease: their keepers were killed, or the machine was."""
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
            stop_all(directory)
            shutil.rmtree(directory, ignore_errors=True)
            path.unlink()
    finally:
        os.close(descriptor)


def _shared_lock(directory: Path) -> int:
    """Waits while the directory is being cleared away, and then begins a new one."""
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
    """Whether the locked file is still the one of that name: whoever cleared away has removed it."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
