"""`resequencer logs`: prints the last lines of the service's log, and follows it."""

import json
import os
import re
import sys
from argparse import ArgumentParser, Namespace
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from time import sleep
from typing import TextIO

from notification_service.configuration.configuration import load
from notification_service.supervision.exit_code import ExitCode
from notification_service.supervision.service_log import NAME

_LINES = 50
_LOOK_SECONDS = 0.2
_ENTRY = re.compile(r"(?P<at>\d{4}-\d\d-\d\dT[\d:.]+Z) (?P<level>[A-Z]+) +(?P<logger>[\w.]+): (?P<message>.*)")
_PLACE = re.compile(r"(?P<message>.*) \[(?P<places>(?:(?:unit|partition|position|slot)=[^\]]*)+)\]")
_FIELD = re.compile(r"(unit|partition|position|slot)=(.*?)(?= (?:partition|position|slot)=|$)")
_NUMBERS = ("position", "slot")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--lines", type=int, default=_LINES, help="number of lines, counted from the end (default: %(default)s)")
    parser.add_argument("--follow", action="store_true", help="keep printing new lines until interrupted")


def show_logs(arguments: Namespace) -> ExitCode:
    """Print the log. Exit code 1 if there is no log: the service was never started as a daemon."""
    path = load(arguments.config, arguments.overrides).notification.run_directory / NAME
    if not path.exists():
        sys.stderr.write(f"resequencer: {path} does not exist: the service has never run in the background\n")
        return ExitCode.NOT_SO
    show = _show_as_json if arguments.json else sys.stdout.writelines
    file = _open(path)
    show(deque(file, maxlen=max(0, arguments.lines)))
    sys.stdout.flush()
    while arguments.follow:
        file = _go_on(file, path, show)
    file.close()
    return ExitCode.DONE


def _go_on(file: TextIO, path: Path, show: Callable[[Iterable[str]], None]) -> TextIO:
    """Print new lines. If the log was rotated meanwhile, continue in the new file."""
    lines = file.readlines()
    show(lines)
    sys.stdout.flush()
    if lines or not path.exists() or os.fstat(file.fileno()).st_ino == path.stat().st_ino:
        sleep(_LOOK_SECONDS)
        return file
    file.close()
    return _open(path)


def _open(path: Path) -> TextIO:
    return path.open(encoding="utf-8", errors="replace")


def _show_as_json(lines: Iterable[str]) -> None:
    """Print one object per line, whatever the format of the log. Output of libraries that is no log line is the `message` of an
    object.

    The indented lines of a stack are the `exception` of the entry before them.
    """
    entry: dict[str, object] = {}
    for line in lines:
        text = line.rstrip("\n")
        if text.startswith("  ") and "at" in entry:
            entry["exception"] = f"{entry['exception']}\n{text[2:]}" if "exception" in entry else text[2:]
            continue
        _print(entry)
        entry = _read(text)
    _print(entry)


def _print(entry: dict[str, object]) -> None:
    if entry:
        sys.stdout.write(json.dumps(entry, ensure_ascii=False) + "\n")


def _read(text: str) -> dict[str, object]:
    if text.startswith("{"):
        try:
            return dict(json.loads(text))
        except ValueError:
            return {"message": text}
    found, places = _ENTRY.fullmatch(text), dict[str, object]()
    if found is None:
        return {"message": text}
    message = found["message"]
    while (within := _PLACE.fullmatch(message)) is not None:
        fields = _FIELD.findall(within["places"])
        places |= {name: int(value) if name in _NUMBERS and value.isdecimal() else value for name, value in fields}
        message = within["message"]
    return {"at": found["at"], "level": found["level"].lower(), "logger": found["logger"], "message": message, **places}
