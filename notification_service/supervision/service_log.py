"""The log of a service in the background: a file that is rotated by size; a full disk does not stop the service."""

import logging
import sys
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

from notification_service.configuration.sections import Logging
from notification_service.supervision.log_format import formatter_of
from storage.private_file import make_private

NAME = "service.log"
_FILE_BYTES = 20 * 1024 * 1024
_OLDER_FILES = 5


class ServiceLog:
    """`service.log` in the run directory, with `service.log.1` … `.5`: the workers' lines unchanged, and those of the supervisor.

    A full file is renamed, which `tail -F` follows. Lines for which the disk has no room are lost, because a log must not stop a
    service. Without a run directory the log is stderr, for a service in the foreground.
    """

    def __init__(self, run_directory: Path | None, settings: Logging) -> None:
        logging.raiseExceptions = False
        self._handler = logging.StreamHandler(sys.stderr) if run_directory is None else _rotating(run_directory)
        self._handler.setFormatter(_Formatter(formatter_of(settings)))
        logging.basicConfig(level=settings.level.upper(), handlers=[self._handler], force=True)

    def write(self, line: bytes, slot: int | None = None) -> None:
        """Write a formatted line of a worker, with its slot if there are several."""
        text = line.rstrip(b"\r\n").decode("utf-8", "replace")
        told = text if slot is None else _with_slot(text, slot)
        self._handler.handle(logging.makeLogRecord({"msg": told, "is_formatted": True}))


class _PrivateFile(RotatingFileHandler):
    def _open(self) -> TextIOWrapper:
        make_private(Path(self.baseFilename))
        return super()._open()


def _rotating(run_directory: Path) -> RotatingFileHandler:
    return _PrivateFile(
        run_directory / NAME, maxBytes=_FILE_BYTES, backupCount=_OLDER_FILES, encoding="utf-8", errors="replace", delay=True
    )


def _with_slot(text: str, slot: int) -> str:
    """Return the line with the slot: as a field of a JSON entry, or behind any other line, such as one from a library."""
    if text.startswith('{"at": ') and text.endswith("}"):
        return f'{{"slot": {slot}, {text[1:]}'
    return f"{text} [slot={slot}]"


class _Formatter(logging.Formatter):
    def __init__(self, ours: logging.Formatter) -> None:
        super().__init__()
        self._ours = ours

    def format(self, record: logging.LogRecord) -> str:
        return str(record.msg) if hasattr(record, "is_formatted") else self._ours.format(record)
