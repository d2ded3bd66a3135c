"""The file in which a running service leaves its report for `resequencer status`."""

import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from notification_service.status.report import STALE_AFTER_MS, StatusReport
from resequencer.clock import Instant, instant_of
from storage.private_file import replace_whole

_log = logging.getLogger("resequencer.daemon")

_BLOCK_BYTES = 4_096
_SPARE_BYTES = 1_024


class StatusFile:
    """`status.json` in the run directory, `status-K.json` for slot K after the first; replaced whole.

    A full disk must neither stop the service nor its report. So the file is padded to whole blocks, with some to spare, and can
    be overwritten in place. If that fails too, it is logged once.
    """

    def __init__(self, run_directory: Path, slot: int = 0) -> None:
        self._path = run_directory / (f"status-{slot}.json" if slot else "status.json")
        self._has_failed = False

    def write(self, report: StatusReport) -> None:
        content = _padded(msgspec.json.format(msgspec.json.encode(report), indent=2))
        try:
            self._replace(content)
            self._has_failed = False
        except OSError as error:
            if not self._overwrite(content):
                self._note(error)

    def find(self) -> StatusReport | None:
        """Return the last report; None if there is none that this version and user can read."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=StatusReport)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    def _replace(self, content: bytes) -> None:
        replace_whole(self._path, content)

    def _overwrite(self, content: bytes) -> bool:
        """Write the report over the old one, only if it needs no further block: a report is never written in part."""
        try:
            with self._path.open("r+b", buffering=0) as file:
                size = os.fstat(file.fileno()).st_size
                return len(content) <= size and file.write(content.ljust(size)) == size
        except OSError:
            return False

    def _note(self, error: OSError) -> None:
        if not self._has_failed:
            _log.warning("%s cannot be written, so `status` shows old values: %s", self._path, error)
        self._has_failed = True


def _padded(content: bytes) -> bytes:
    blocks = (len(content) + _SPARE_BYTES) // _BLOCK_BYTES + 1
    return content.ljust(blocks * _BLOCK_BYTES - 1) + b"\n"


LATE_MS = 600_000
"""What waits for longer, beside the workers, is worth a note."""


class OfService(Protocol):
    """What such a file holds: it names the process of the service, which is its supervisor's."""

    @property
    def service_process_id(self) -> int: ...


_File = TypeVar("_File", bound=OfService)


class RunFile(Generic[_File]):
    """A file that is replaced whole. A disk without room must stop neither the service nor what the file is about."""

    def __init__(self, run_directory: Path, name: str, kind: type[_File]) -> None:
        self._path = run_directory / f"{name}.json"
        self._kind = kind

    def write(self, content: _File) -> None:
        with suppress(OSError):
            replace_whole(self._path, msgspec.json.encode(content) + b"\n")

    def find(self, service_process_id: int) -> _File | None:
        """Return what this service wrote last; None if it wrote nothing that can be read."""
        return self._find(self._path, service_process_id)

    def _find(self, path: Path, service_process_id: int) -> _File | None:
        try:
            found = msgspec.json.decode(path.read_bytes(), type=self._kind)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None
        return found if found.service_process_id == service_process_id else None

    def remove(self) -> None:
        with suppress(OSError):
            self._path.unlink()


class SideReport(msgspec.Struct, frozen=True):
    """The last report of a process beside the workers. `problem` says why it stands still or does not run.

    `service_process_id` is the supervisor's, `process_id` the process's own, or the supervisor's while there is no such process.
    Then `reported_at` is None.
    """

    service_process_id: int
    process_id: int
    reported_at: str | None = None
    problem: str | None = None


_Report = TypeVar("_Report", bound=SideReport)


class SideFile(RunFile[_Report]):
    """The file with the last report of a process beside the workers."""

    def write_problem(self, why: str) -> None:
        """Write, as the supervisor, why the process does not run."""
        self.write(self._kind(os.getpid(), os.getpid(), problem=why))


class SideStatus(msgspec.Struct, frozen=True):
    """A process beside the workers as `status` shows it. `slot` is 0 where there is only one.

    Without a `process_id` it does not run.
    """

    slot: int
    process_id: int | None
    problem: str | None


def side_status(report: SideReport | None, now: Instant, slot: int = 0) -> SideStatus:
    """Return the status of the process that wrote this report; None: it has not written one yet."""
    if report is None:
        return SideStatus(slot, None, "it is starting")
    if report.reported_at is None:
        return SideStatus(slot, None, report.problem)
    is_stale = now - instant_of(report.reported_at) > STALE_AFTER_MS
    return SideStatus(slot, report.process_id, f"it has not reported since {report.reported_at}" if is_stale else report.problem)


def side_line(name: str, status: SideStatus, otherwise: str) -> str:
    """Return the line for people; `otherwise` says what a process without a problem does."""
    process = f" (process {status.process_id})" if status.process_id else ""
    return f"{name}{process}: {status.problem or otherwise}"
