"""The locks of a service: on its run directory, its output directory, its facts, its database, and its input directory."""

import fcntl
import logging
import os
from contextlib import suppress
from pathlib import Path
from time import sleep
from typing import NamedTuple

from notification_service.configuration.configuration import Configuration
from notification_service.configuration.sections import TransportType
from notification_service.configuration.storages import storage_kind
from notification_service.status.service_report import ServiceReport, find_reports, service_report, state_of
from resequencer.clock import Instant
from resequencer.errors import ResequencerError
from storage.private_file import make_lasting_directory, make_private, make_private_directory, narrow_run_directory

NAME = "lock"
UNKNOWN = "unknown"
_TRIES = 5
_PAUSE_SECONDS = 0.02


class AlreadyRunning(ResequencerError):
    """Another process holds it."""

    def __init__(self, place: Path, holder: str) -> None:
        self.holder = holder
        super().__init__(f"{place}: in use by the service with process id {holder}; stop it, or name another one")

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
            holder = _find_input_holder(descriptor)
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


def _find_input_holder(descriptor: int) -> str:
    """Return the holder's process id from the kernel's list of locks: proc_locks(5)."""
    status = os.fstat(descriptor)
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    with suppress(OSError):
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            fields = line.split()
            if "FLOCK" in fields and place in fields:
                return fields[fields.index(place) - 1]
    return UNKNOWN


_log = logging.getLogger("resequencer.daemon")


def acquire_locks(configuration: Configuration) -> list[int]:
    """Acquire all locks and return their descriptors; they are held while any process has one of each open.

    The directories of output, facts and input and the database may be named by another service's configuration too.

    Then what is private in the run directory is narrowed, if an earlier version or another program made it wider.

    Raises:
        AlreadyRunning: Another service holds one of them; none is held then.
        DirectoryUnusable: A directory cannot be made or written.
    """
    notification = configuration.notification
    locks: list[RunLock | InputLock] = [
        RunLock(each) for each in dict.fromkeys((notification.run_directory.resolve(), notification.output_directory.resolve()))
    ]
    # Its directory is not created: a missing directory is probably not mounted, and the storage reports it.
    find_file = storage_kind(configuration).find_file
    if find_file is not None and (database := find_file(configuration).resolve()).parent.is_dir():
        locks.append(RunLock(database.parent, database.name))
    if configuration.ingress.transport is TransportType.FILE:
        locks.append(InputLock(configuration.ingress.file_directory.resolve()))
    if notification.transport is TransportType.FILE and configuration.counts_payments:
        # Beside the directory, for what is in it is input of another program.
        facts = configuration.aggregation.facts_directory.resolve()
        locks.append(RunLock(facts.parent, facts.name))
    try:
        descriptors = [descriptor for each in locks if (descriptor := each.acquire()) is not None]
    except BaseException:
        for each in locks:
            each.release()
        raise
    for wide in narrow_run_directory(notification.run_directory):
        _log.warning("others may read %s, and its rights cannot be changed: it is another user's; give it to this one", wide)
    return descriptors


class RunningService(NamedTuple):
    """`report` is None if the service has not reported yet. `holder` is its process id as text, None if it does not run."""

    state: str
    report: ServiceReport | None
    holder: str | None

    @property
    def process_id(self) -> int | None:
        """The service's process id; None if it does not run, or the id cannot be read."""
        return int(self.holder) if self.holder is not None and self.holder.isdigit() else None


def find_service(run_directory: Path, now: Instant) -> RunningService:
    """Read who holds the run directory before the reports: then a report is not an older service's."""
    holder = find_holder(run_directory)
    reports = find_reports(run_directory)
    if reports and holder is not None and holder not in (str(reports[0].process_id), UNKNOWN):
        reports = ()
    if not reports:
        return RunningService(state_of(None, now, is_running=holder is not None), None, holder)
    report = service_report(reports, now, is_running=holder is not None)
    return RunningService(report.state, report, holder)
