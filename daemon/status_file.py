"""Where a running service leaves its report for `resequencer status`."""

import logging
import os
from pathlib import Path

import msgspec

from daemon.status_report import StatusReport

_log = logging.getLogger("resequencer.daemon")


class StatusFile:
    """`status.json` in the run directory, replaced whole. A disk without room must not stop the service: it is said once."""

    def __init__(self, run_directory: Path) -> None:
        self._path = run_directory / "status.json"
        self._has_failed = False

    def write(self, report: StatusReport) -> None:
        fresh = self._path.with_suffix(".json.new")
        try:
            fresh.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
            os.replace(fresh, self._path)
        except OSError as error:
            if not self._has_failed:
                _log.warning("%s cannot be written, status will be stale: %s", self._path, error)
            self._has_failed = True
        else:
            self._has_failed = False

    def find(self) -> StatusReport | None:
        """The last report, None if there is none that can be read (of another version, of another user)."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=StatusReport)
        except (OSError, msgspec.MsgspecError):
            return None
