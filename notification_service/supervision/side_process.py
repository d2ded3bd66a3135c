"""A process beside the workers, such as the console: its end never ends or drains a worker."""

import logging
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic
from typing import Protocol

from notification_service.supervision.child import Child
from notification_service.supervision.exit_code import ExitCode
from notification_service.supervision.service_log import ServiceLog

_log = logging.getLogger("resequencer.supervisor")
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 60.0
_STEADY_SECONDS = 60.0
"""A process that ran for so long ended for a new reason: it is started again soon."""
_STOP_SECONDS = 4
_FINAL = (ExitCode.USAGE, ExitCode.CONFIGURATION_REFUSED)


class ProblemFile(Protocol):
    """Where `status` finds why a process does not run."""

    def write_problem(self, why: str) -> None: ...

    def remove(self) -> None: ...


class SideProcess:
    """Starts a process, keeps its output in the service's log, and starts it again when it ends. Only `stop` waits.

    `name` begins the lines about it: "the console". `command` starts it after `--lifeline` with a descriptor is appended. The
    process ends when the supervisor closes the other end, or ends itself.
    """

    def __init__(self, name: str, command: Sequence[str], log: ServiceLog, file: ProblemFile) -> None:
        self.name = name
        self._command = command
        self._service_log = log
        self._file = file
        self._child = Child(self._take)
        self._last_line = ""
        self._started_at = 0.0
        self._pause_seconds = _FIRST_PAUSE_SECONDS
        self._is_draining = False
        self.starts_at: float | None = monotonic()
        self._file.remove()

    @property
    def output(self) -> int | None:
        """The descriptor of its output, None while there is none."""
        return self._child.output

    @property
    def is_running(self) -> bool:
        return self._child.process is not None

    def start_if_due(self) -> None:
        """Start it if it is due. What keeps it from starting, such as too many open files, is noted, and tried again later."""
        if self.starts_at is None or self.starts_at > monotonic():
            return
        try:
            self._child.start(self._command)
        except OSError as error:
            self._postpone(f"it could not be started: {error}")
        else:
            self.starts_at, self._started_at = None, monotonic()

    def listen(self) -> None:
        """Put what it has printed into the log."""
        self._child.listen()

    def reap(self) -> None:
        """Note its end, if it has ended, and when it is due again."""
        code = self._child.find_end()
        if code is None:
            return
        if monotonic() - self._started_at > _STEADY_SECONDS:
            self._pause_seconds = _FIRST_PAUSE_SECONDS
        why = self._last_line.removeprefix("resequencer: ") or f"it ended with {code}"
        if self._is_draining:
            if code != ExitCode.DONE:
                _log.warning("%s ended with %d: %s", self.name, code, why)
        elif code in _FINAL:
            self._file.write_problem(why)
            _log.warning("%s does not run: %s", self.name, why)
        else:
            self._postpone(why)

    def drain(self) -> None:
        """Let it end, and start no other one."""
        self._is_draining, self.starts_at = True, None
        self._child.cut()

    def kill(self) -> None:
        self._child.kill()

    def stop(self) -> None:
        """Let it end, and start no other one. Waits for what it still does for some seconds."""
        self.drain()
        if self._child.process is not None:
            try:
                self._child.process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._child.kill()
                with suppress(subprocess.TimeoutExpired):  # A file system that hangs must not keep the locks.
                    self._child.process.wait(_STOP_SECONDS)
        self._child.forget()
        self._file.remove()

    def _take(self, line: bytes) -> None:
        self._last_line = line.decode("utf-8", "replace")
        self._service_log.write(line)

    def _postpone(self, why: str) -> None:
        self._file.write_problem(why)
        _log.warning("%s does not run: %s; next start in %.0f s; the service continues", self.name, why, self._pause_seconds)
        self.starts_at = monotonic() + self._pause_seconds
        self._pause_seconds = min(2 * self._pause_seconds, _LONGEST_PAUSE_SECONDS)
