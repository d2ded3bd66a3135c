"""What the console may ask of the workers of this machine's service."""

import os
import re
import signal
from pathlib import Path
from time import monotonic, sleep

from notification_service.configuration.configuration import Configuration
from notification_service.status.service_report import find_reports
from notification_service.supervision.locks import find_holder
from notification_service.supervision.service_log import NAME

_ANSWER_SECONDS = 3
_LOOK_SECONDS = 0.05
_MAX_BYTES = 256 * 1024
_OF_A_STACK = re.compile(r"(^|\W)(Current thread|Thread) 0x[0-9a-f]+|  File \\?\".{1,1000}\", line [0-9?]+ in |^  (<|\.\.\.)")
"""A line as Python's faulthandler prints it. In a traceback, which ends with the text of an error, a comma follows the number."""
THREADS = signal.SIGUSR1
"""A worker that gets this signal prints the stacks of its threads."""


class LocalWorkers:
    """Finds workers by their reports, and makes sure that each is a child of the running supervisor."""

    def __init__(self, configuration: Configuration) -> None:
        self._run_directory = configuration.notification.run_directory
        self._asked: set[int] = set()

    def restart(self, slot: int) -> bool:
        """Return False also if its supervisor would not start another one, or if it was asked before and has not ended yet."""
        worker = self._find(slot, is_to_end=True)
        if worker is None or worker in self._asked:
            return False
        self._asked.add(worker)
        return _send(worker, signal.SIGTERM)

    def dump_threads(self, slot: int) -> str | None:
        """Return the lines of stacks that the service's log gains after the signal, also if other workers print theirs.

        Other lines are not returned: they may quote payments.
        """
        log = self._run_directory / NAME
        before = _size(log)
        worker = self._find(slot)
        if worker is None or not _send(worker, THREADS):
            return None
        until = monotonic() + _ANSWER_SECONDS
        gained = ""
        while monotonic() < until:
            sleep(_LOOK_SECONDS)
            fresh = stacks_in(_read(log, before))
            if fresh and fresh == gained:
                return fresh
            gained = fresh
        return gained or None

    def _find(self, slot: int, *, is_to_end: bool = False) -> int | None:
        """Return the worker's process id, None if there is no such worker, or if none would follow it."""
        holder = find_holder(self._run_directory)
        report = next((each for each in find_reports(self._run_directory) if each.slot == slot), None)
        if holder is None or report is None or report.worker_process_id is None or str(report.process_id) != holder:
            return None
        worker, supervisor = report.worker_process_id, report.process_id
        if worker == supervisor or _parent_of(worker) != supervisor:
            return None
        # In the foreground a service of one worker ends with it.
        return None if is_to_end and report.worker_count == 1 and not _is_in_background(supervisor) else worker


def stacks_in(log: str) -> str:
    """Return the lines of dumps of threads."""
    return "".join(filter(_OF_A_STACK.search, log.splitlines(keepends=True)))


def _send(process: int, number: signal.Signals) -> bool:
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return False
    return True


def _is_in_background(supervisor: int) -> bool:
    try:
        return b"supervise" in Path(f"/proc/{supervisor}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def _parent_of(process: int) -> int | None:
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None


def _size(log: Path) -> int:
    try:
        return log.stat().st_size
    except OSError:
        return 0


def _read(log: Path, since: int) -> str:
    try:
        with log.open("rb") as file:
            file.seek(since)
            return file.read(_MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
