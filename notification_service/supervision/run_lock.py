"""The lock of a directory or a file, for one service at a time. The kernel releases it when its holder ends."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from time import sleep

from resequencer.errors import ResequencerError
from storage.private_file import make_lasting_directory, make_private, make_private_directory

NAME = "lock"
UNKNOWN = "unknown"
_TRIES = 5
_PAUSE_SECONDS = 0.02


class AlreadyRunning(ResequencerError):
    """Another process holds it."""

    def __init__(self, held: Path, holder: str) -> None:
        self.holder = holder
        super().__init__(f"{held}: in use by the service with process id {holder}; stop it, or name another one")

    @property
    def is_alive(self) -> bool:
        """Whether the service runs. False for the worker of a supervisor that is gone: it still holds the lock, and will end."""
        return self.holder == UNKNOWN or Path(f"/proc/{self.holder}").exists()


class DirectoryUnusable(ResequencerError):
    """The directory cannot be made, or nothing can be written to it."""

    def __init__(self, directory: Path, error: OSError) -> None:
        super().__init__(f"{directory}: cannot be used: {error.strerror or error}; make it writable, or name another directory")


class RunLock:
    """Held from `acquire` until the process ends or `release`. The file has the holder's process id, for people.

    The lock is on a directory, or with `file` on one file in it. A directory that `is_private` is for its owner alone.
    """

    def __init__(self, directory: Path, file: str | None = None, *, is_private: bool = False) -> None:
        self._is_private = is_private
        self._directory = directory
        self._held = directory / file if file else directory
        self._path = directory / (f"{file}.{NAME}" if file else NAME)
        self._descriptor: int | None = None

    def acquire(self) -> int:
        """Acquire the lock and return its descriptor; a process that inherits it holds the lock too. A missing directory is made.

        Raises:
            AlreadyRunning: Another process holds it.
            DirectoryUnusable: It is no directory, or may not be written.
        """
        try:
            if self._is_private:
                make_private_directory(self._directory)
            else:
                make_lasting_directory(self._directory)
            descriptor = os.open(make_private(self._path), os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise DirectoryUnusable(self._directory, error) from error
        if not _try_lock(descriptor):
            os.close(descriptor)
            raise AlreadyRunning(self._held, _find_holder(self._path) or UNKNOWN)
        # A full disk must not prevent a start. There is room in the file if a process id was in it before.
        with suppress(OSError):
            written = os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            os.ftruncate(descriptor, written)
        self._descriptor = descriptor
        return descriptor

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _try_lock(descriptor: int) -> bool:
    """Take the lock; return False if a service has it. A search for the holder holds it for an instant; that is no service."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sleep(_PAUSE_SECONDS)
        else:
            return True
    return False


def find_holder(directory: Path) -> str | None:
    """Return the process id of the service that holds the directory; `UNKNOWN` if it could not be written, None if none runs."""
    try:
        return _find_holder(directory / NAME)
    except OSError as error:
        raise DirectoryUnusable(directory, error) from error


def _find_holder(path: Path) -> str | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(descriptor, 32, 0).decode("ascii", "replace").partition("\n")[0] or UNKNOWN
    finally:
        os.close(descriptor)
    return None
