"""One service at a time on a directory: a lock that the kernel lets go of when its holder dies."""

import fcntl
import os
from pathlib import Path

from domain.errors import ResequencerError

NAME = "lock"


class AlreadyRunning(ResequencerError):
    """Another process holds the directory."""

    def __init__(self, directory: Path, holder: str) -> None:
        super().__init__(f"{directory}: in use by the service with process id {holder}; stop it, or use another directory")


class RunLock:
    """Held from `acquire` until the process ends or `release`. The file carries the holder's process id, for people."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Raises AlreadyRunning if another process holds it."""
        self._directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._directory / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise AlreadyRunning(self._directory, find_holder(self._directory) or "unknown") from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def find_holder(directory: Path) -> str | None:
    """The process id of the service that holds the directory, None if none does."""
    try:
        descriptor = os.open(directory / NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
    finally:
        os.close(descriptor)
    return None
