"""The lock on an input directory: two services would each acknowledge and archive records that the other has not read."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from notification_service.supervision.run_lock import UNKNOWN, AlreadyRunning


class InputLock:
    """A lock on the directory itself, so that producers and the service find no further file in it.

    A directory that cannot be made or opened is not locked; the service waits for it and reports it. Nor is a directory locked on
    a file system that cannot do so, such as NFS.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor: int | None = None

    def acquire(self) -> int | None:
        """Acquire the lock and return its descriptor; a process that inherits the descriptor holds the lock too.

        Raises:
            AlreadyRunning: Another process holds it.
        """
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _find_holder(descriptor)
            os.close(descriptor)
            raise AlreadyRunning(self._directory, holder) from None
        except OSError:
            os.close(descriptor)
            return None
        self._descriptor = descriptor
        return descriptor

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _find_holder(descriptor: int) -> str:
    """Return the holder's process id from the kernel's list of locks: proc_locks(5)."""
    status = os.fstat(descriptor)
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    with suppress(OSError):
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            fields = line.split()
            if "FLOCK" in fields and place in fields:
                return fields[fields.index(place) - 1]
    return UNKNOWN
