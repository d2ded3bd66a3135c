"""The log of a service in the background: a file that is rotated by size; a full disk does not stop the service."""

import json
import logging
import sys
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

from notification_service.configuration.sections import LogFormat, Logging
from resequencer.clock import instant_text
from resequencer.printable import printable, without_secrets
from storage.private_file import make_private

_PLACES = ("unit", "partition", "position")


def configure_logs(settings: Logging) -> None:
    """Send all logs to stderr; the process that runs the service keeps them."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter_of(settings))
    logging.basicConfig(level=settings.level.upper(), handlers=[handler], force=True)
    logging.getLogger("Thespian").setLevel(logging.ERROR)
    # kafka-python logs each attempt of each connection as a warning or an error. The waiting part of the service logs an outage
    # once.
    logging.getLogger("kafka").addHandler(logging.NullHandler())
    logging.getLogger("kafka").propagate = False
    logging.getLogger("kafka").setLevel(logging.WARNING)
    # It logs a line per request.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logging.getLogger("proton").setLevel(logging.WARNING)


def formatter_of(settings: Logging) -> logging.Formatter:
    """Return the configured formatter."""
    return JsonFormatter() if settings.format is LogFormat.JSON else TextFormatter()


class TextFormatter(logging.Formatter):
    """`2026-03-28T23:33:55.941Z WARNING resequencer.guardian: message [unit=uow-1 partition=T-0]`."""

    def format(self, record: logging.LogRecord) -> str:
        places = " ".join(f"{name}={value}" for name, value in _places(record).items())
        text = f"{_instant(record)} {record.levelname:<7} {record.name}: {record.getMessage()}"
        text = without_secrets(printable(f"{text} [{places}]" if places else text))
        return "\n".join([text, *self._traceback(record)])

    def _traceback(self, record: logging.LogRecord) -> list[str]:
        """Return the traceback, indented, so that no line of it looks like an entry."""
        lines = without_secrets(self.formatException(record.exc_info)).splitlines() if record.exc_info else []
        return [f"  {printable(line)}" for line in lines]


class JsonFormatter(logging.Formatter):
    """One JSON object per line: `at`, `level`, `logger`, `message`, and the places."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "at": _instant(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": without_secrets(record.getMessage()),
            **_places(record),
        }
        if record.exc_info:
            fields["exception"] = without_secrets(self.formatException(record.exc_info))
        return json.dumps(fields, ensure_ascii=False, default=str)


def _places(record: logging.LogRecord) -> dict[str, object]:
    return {name: getattr(record, name) for name in _PLACES if hasattr(record, name)}


def _instant(record: logging.LogRecord) -> str:
    return instant_text(int(record.created * 1_000))


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
        line_text = text if slot is None else _with_slot(text, slot)
        self._handler.handle(logging.makeLogRecord({"msg": line_text, "is_formatted": True}))


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
