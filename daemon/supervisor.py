"""The supervisor: starts the worker, keeps its log, starts it again when it dies, and lets it drain when told to stop."""

import logging
import os
import signal
import subprocess
from collections.abc import Sequence
from time import sleep
from types import FrameType

from daemon.deaths import Deaths
from daemon.exit_code import ExitCode
from daemon.restart_policy import RestartPolicy
from daemon.service_log import ServiceLog
from daemon.system_clock import SystemClock

_log = logging.getLogger("resequencer.supervisor")
_DRAIN_SECONDS = 30
_SLICE_MS = 100
_FINAL = (ExitCode.USAGE, ExitCode.CONFIGURATION_REFUSED)
"""Starting again cannot help."""


class Supervisor:
    """One worker at a time, as a child process that ends when this one does.

    `command` starts a worker when `--lifeline`, a descriptor and what it is told of the deaths before are appended;
    `descriptors` are the locks, which it holds too so that nobody takes its place before it has ended.
    """

    def __init__(self, command: Sequence[str], descriptors: Sequence[int], log: ServiceLog, deaths: Deaths) -> None:
        self._command = command
        self._descriptors = descriptors
        self._service_log = log
        self._deaths = deaths
        self._policy = RestartPolicy()
        self._clock = SystemClock()
        self._worker: subprocess.Popen[bytes] | None = None
        self._lifeline: int | None = None
        self._is_stopping = False

    def run(self) -> ExitCode:
        """Until SIGTERM or SIGINT, or until the worker cannot be kept alive.

        The first signal lets the worker drain, for 30 s at most; a second one ends it at once.
        """
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, self._stop)
        signal.signal(signal.SIGALRM, self._lose_patience)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        while True:
            code = self._live_once()
            if self._is_stopping:
                return ExitCode.DONE if code == 0 else ExitCode.NOT_SO
            if code in _FINAL:
                _log.error("the worker ended with %d: starting it again cannot help", code)
                return ExitCode(code)
            told, pause_ms = self._deaths.note(code), self._policy.note_death(self._clock.now())
            if pause_ms is None:
                _log.error("%s", self._deaths.note_the_last())
                return ExitCode.NOT_SO
            _log.warning("the worker %s; it is started again in %.1f s", told, pause_ms / 1_000)
            if not self._has_waited(pause_ms):
                return ExitCode.DONE

    def _live_once(self) -> int:
        """Start a worker and keep its log until it has ended; how it ended, negative for a signal."""
        theirs, self._lifeline = os.pipe()
        command = [*self._command, "--lifeline", str(theirs), *self._deaths.arguments]
        passed = (theirs, *self._descriptors)
        self._worker = subprocess.Popen(  # noqa: S603 - our own command, with the arguments that were checked before.
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, pass_fds=passed
        )
        os.close(theirs)
        if self._is_stopping:
            self._cut()
        assert self._worker.stdout is not None
        for line in self._worker.stdout:
            self._service_log.write(line)
        code = self._worker.wait()
        self._cut()
        return code

    def _stop(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self._is_stopping:
            self._lose_patience(number, None)
            return
        self._is_stopping = True
        signal.alarm(_DRAIN_SECONDS)
        self._cut()

    def _lose_patience(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self._worker is not None and self._worker.poll() is None:
            self._worker.kill()

    def _cut(self) -> None:
        lifeline, self._lifeline = self._lifeline, None
        if lifeline is not None:
            os.close(lifeline)

    def _has_waited(self, milliseconds: int) -> bool:
        """False as soon as it is to stop."""
        while milliseconds > 0 and not self._is_stopping:
            sleep(min(milliseconds, _SLICE_MS) / 1_000)
            milliseconds -= _SLICE_MS
        return not self._is_stopping
