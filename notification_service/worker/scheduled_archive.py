"""Runs `resequencer archive` beside the worker at an interval."""

import logging
import os
import subprocess
from argparse import ArgumentParser
from collections.abc import Sequence

from notification_service.configuration.schema import path_of
from notification_service.configuration.sections import Ingress
from notification_service.supervision.service_process import own_command
from resequencer.clock import Instant

_log = logging.getLogger("resequencer.archive")
_FLAG_EVERY = "10m"
_NICENESS = 10


def add_archive_flag(parser: ArgumentParser) -> None:
    """Add `--archive`, which has the effect of setting the key."""
    key = path_of(Ingress, "archive_every_ms")
    parser.add_argument(
        "--archive",
        action="append_const",
        dest="overrides",
        const=f"{key}={_FLAG_EVERY}",
        help=f"archive processed input at this interval; the same as --set {key}={_FLAG_EVERY}",
    )


class Archiving:
    """Starts one process at a time, at low priority, because packing must not delay the cycles.

    `arguments` are those common to all commands. The output goes to the log after the process has ended. The process may be
    killed at any moment.
    """

    def __init__(self, arguments: Sequence[str], every_ms: int | None) -> None:
        self._command = own_command("archive", *arguments)
        self._every_ms = every_ms
        self._began_at: Instant | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def look(self, now: Instant) -> None:
        """Start a process if it is time, and log the output of the last one; never waits."""
        if self._every_ms is None:
            return
        if self._began_at is None:
            self._began_at = now
        if self._process is not None:
            self._tell_if_ended()
        elif not 0 <= now - self._began_at < self._every_ms:
            self._began_at = now
            self._begin()

    def close(self) -> None:
        """End the process. The next one finishes its work."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _begin(self) -> None:
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own command, with the arguments that were checked before.
                self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            os.setpriority(os.PRIO_PROCESS, self._process.pid, _NICENESS)
        except OSError as error:
            _log.warning("the archive command cannot start: %s", error.strerror or error)

    def _tell_if_ended(self) -> None:
        assert self._process is not None
        code = self._process.poll()
        if code is None:
            return
        # One line per partition, so the pipe's buffer holds all of it.
        output, _ = self._process.communicate()
        self._process = None
        for line in output.decode("utf-8", "replace").splitlines():
            _log.log(logging.INFO if code == 0 else logging.WARNING, "%s", line)
        if code and not output:
            _log.warning("the archive command ended with exit code %d", code)
