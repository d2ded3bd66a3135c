"""Lets `resequencer archive` run beside the worker every so often."""

import logging
import os
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Sequence

from daemon.configuration.schema import path_of
from daemon.configuration.sections import Ingress
from domain.clock import Instant

_log = logging.getLogger("resequencer.archive")
_FLAG_EVERY = "10m"
_NICENESS = 10


def add_archive_flag(parser: ArgumentParser) -> None:
    """`--archive`: the same as setting the key."""
    key = path_of(Ingress, "archive_every_ms")
    parser.add_argument(
        "--archive",
        action="append_const",
        dest="overrides",
        const=f"{key}={_FLAG_EVERY}",
        help=f"archive processed input at this interval; the same as --set {key}={_FLAG_EVERY}",
    )


class Archiving:
    """A process of its own, one at a time, at low priority: packing must not hold up the cycles.

    `arguments` are those that every verb takes. What it says goes to the log when it has ended. It may be killed at any moment.
    """

    def __init__(self, arguments: Sequence[str], every_ms: int | None) -> None:
        self._command = [sys.executable, "-m", "daemon", "archive", *arguments]
        self._every_ms = every_ms
        self._began_at: Instant | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def look(self, now: Instant) -> None:
        """Begin when it is time, tell what the last one did; never waits."""
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
        """End it. What it had begun, the next one goes on with."""
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
        # A line for each partition: far less than the pipe holds.
        said, _ = self._process.communicate()
        self._process = None
        for line in said.decode("utf-8", "replace").splitlines():
            _log.log(logging.INFO if code == 0 else logging.WARNING, "%s", line)
        if code and not said:
            _log.warning("the archive command ended with exit code %d", code)
