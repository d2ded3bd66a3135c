"""Structured logs: one line per entry, as text or JSON, with unit, partition and position if they are known."""

import json
import logging
import sys

from notification_service.configuration.sections import LogFormat, Logging
from resequencer.clock import instant_text
from resequencer.printable import printable, without_secrets

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
