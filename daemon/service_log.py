"""The log of a service in the background: a file that is rotated by size and survives a full disk."""

import logging
from logging.handlers import RotatingFileHandler
from pathlib import Path

from daemon.logs import formatter_of
from daemon.sections import Logging

NAME = "service.log"
_FILE_BYTES = 20 * 1024 * 1024
_OLDER_FILES = 5


class ServiceLog:
    """`service.log` in the run directory, with `service.log.1` … `.5` behind it: the worker's lines as they come, and our own.

    It is renamed when it is full, which `tail -F` follows. What finds no room is lost: a log may not stop a service.
    """

    def __init__(self, run_directory: Path, settings: Logging) -> None:
        logging.raiseExceptions = False
        self._handler = RotatingFileHandler(
            run_directory / NAME, maxBytes=_FILE_BYTES, backupCount=_OLDER_FILES, encoding="utf-8", errors="replace", delay=True
        )
        self._handler.setFormatter(_Formatter(formatter_of(settings)))
        logging.basicConfig(level=settings.level.upper(), handlers=[self._handler], force=True)

    def write(self, line: bytes) -> None:
        """A line of the worker's, which has its form already."""
        text = line.rstrip(b"\r\n").decode("utf-8", "replace")
        self._handler.handle(logging.makeLogRecord({"msg": text, "is_formatted": True}))


class _Formatter(logging.Formatter):
    def __init__(self, ours: logging.Formatter) -> None:
        super().__init__()
        self._ours = ours

    def format(self, record: logging.LogRecord) -> str:
        return str(record.msg) if hasattr(record, "is_formatted") else self._ours.format(record)
