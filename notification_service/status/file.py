"""The file in which a running service leaves its report for `resequencer status`."""

import logging
import os
from contextlib import suppress
from pathlib import Path

import msgspec

from notification_service.status.report import StatusReport
from storage.private_file import make_private

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
        self._fresh = self._path.with_suffix(".json.new")
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
        try:
            make_private(self._fresh).write_bytes(content)
            os.replace(self._fresh, self._path)
        except OSError:
            with suppress(OSError):
                self._fresh.unlink(missing_ok=True)
            raise

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
