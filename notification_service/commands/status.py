"""`resequencer status | logs`: whether the service is ready and what waits, and the last lines of the daemon's log."""

import json
import os
import re
import sys
from argparse import ArgumentParser, Namespace
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from time import sleep
from typing import Any, TextIO

import msgspec

from notification_service.commands.command import say
from notification_service.configuration.configuration import Configuration, load
from notification_service.status.aggregation import aggregation_lines, aggregation_notes, bridge_lines
from notification_service.status.delivery import delivery_lines, delivery_notes
from notification_service.status.report import State
from notification_service.status.service_report import ServiceReport
from notification_service.status.text import on_one_screen, served_lines, short_status_lines, status_lines
from notification_service.supervision.exit_code import ExitCode
from notification_service.supervision.locks import NAME as LOCK
from notification_service.supervision.locks import find_service
from notification_service.supervision.service_log import NAME
from notification_service.supervision.system_clock import SystemClock
from notification_service.wiring.side_reports import find_aggregation_of, find_bridge_of, find_delivery_of, find_served
from resequencer.printable import printable
from storage.embedded.commit_log import logs_of

_BLOCK_BYTES = 512


class Taken(msgspec.Struct, frozen=True):
    """Disk space in `bytes`, as the file system counts it: in whole blocks."""

    files: int
    bytes: int


def disk_use(configuration: Configuration) -> dict[str, Taken]:
    """Return the disk space of each group of files that may grow; missing or unreadable files count as nothing."""
    ingress, notification, database = configuration.ingress, configuration.notification, configuration.storage.embedded_file
    run_directory = notification.run_directory
    places = {
        "input": _names(ingress.file_directory),
        "archive": _names(ingress.archive_directory),
        "output": _names(notification.output_directory),
        "facts": _names(configuration.aggregation.facts_directory),
        "database": [database],
        "database log": [database.with_name(f"{database.name}-wal"), *logs_of(database)],
        "service log": [each for each in _names(run_directory) if each.name.startswith(NAME)],
    }
    return {name: _taken(paths) for name, paths in places.items()}


def in_words(use: dict[str, Taken]) -> str:
    """Return one line of text, without groups that take no space."""
    return ", ".join(
        f"{name} {each.bytes / 1e6:.1f} MB" + (f" in {each.files} files" if each.files > 1 else "")
        for name, each in use.items()
        if each.files
    )


def _names(directory: Path) -> list[Path]:
    try:
        with os.scandir(directory) as entries:
            return [directory / each.name for each in entries if each.is_file(follow_symlinks=False) and each.name != LOCK]
    except OSError:
        return []


def _taken(paths: Iterable[Path]) -> Taken:
    files = size = 0
    for path in paths:
        try:
            size += path.stat().st_blocks * _BLOCK_BYTES
        except OSError:
            continue
        files += 1
    return Taken(files, size)


def add_status_arguments(parser: ArgumentParser) -> None:
    """Add the length. The last one that is given counts: `make status` gives the short one first."""
    parser.add_argument("--short", action="store_true", help="the main facts, on a screen of 80 columns and 24 rows")
    parser.add_argument("--verbose", action="store_false", dest="short", help="all there is (the default)")


def status(arguments: Namespace) -> ExitCode:
    """Print the status. Exit code 0 only if all workers are ready."""
    configuration = load(arguments.config, arguments.overrides)
    run_directory, now = configuration.notification.run_directory, SystemClock().now()
    state, service, _ = found = find_service(run_directory, now)
    use, served = disk_use(configuration), find_served(run_directory, found)
    delivery, aggregation = find_delivery_of(configuration, found), find_aggregation_of(configuration, found)
    bridge = find_bridge_of(configuration, found)
    if arguments.json:
        fields = {
            **(_service_fields(service, use) if service else {}),
            **msgspec.to_builtins(served),
            **msgspec.to_builtins(bridge),
            **msgspec.to_builtins(delivery),
            **msgspec.to_builtins(aggregation),
            "state": state,
        }
        sys.stdout.write(json.dumps(fields, ensure_ascii=False, indent=2) + "\n")
    else:
        beside = [*bridge_lines(bridge), *delivery_lines(delivery), *aggregation_lines(aggregation)]
        notes = [f"note: {each}" for each in (*delivery_notes(delivery, now), *aggregation_notes(aggregation, now))]
        if arguments.short:
            short = [*(short_status_lines(service) if service else [state]), *notes, *served_lines(served), *beside]
            lines = on_one_screen([*map(printable, short)])
        else:
            whole = status_lines(service, in_words(use)) if service else [state]
            lines = [*map(printable, (*whole, *beside, *notes, *served_lines(served)))]
        sys.stdout.write("\n".join(lines) + "\n")
    return ExitCode.DONE if state == State.READY else ExitCode.FAILED


def _service_fields(service: ServiceReport, use: dict[str, Taken]) -> dict[str, Any]:
    """Return the report as a dict; with several workers all in one, and each under `workers`."""
    fields = {**msgspec.to_builtins(service.whole), "disk": msgspec.to_builtins(use)}
    if len(service.workers) > 1:
        fields["workers"] = [{**msgspec.to_builtins(each), "state": state} for state, each in service.workers]
    return fields


_LINES = 50
_LOOK_SECONDS = 0.2
_ENTRY = re.compile(r"(?P<at>\d{4}-\d\d-\d\dT[\d:.]+Z) (?P<level>[A-Z]+) +(?P<logger>[\w.]+): (?P<message>.*)")
_PLACE = re.compile(r"(?P<message>.*) \[(?P<places>(?:(?:unit|partition|position|slot)=[^\]]*)+)\]")
_FIELD = re.compile(r"(unit|partition|position|slot)=(.*?)(?= (?:partition|position|slot)=|$)")
_NUMBERS = ("position", "slot")


def add_logs_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--lines", type=int, default=_LINES, help="number of lines, counted from the end (default: %(default)s)")
    parser.add_argument("--follow", action="store_true", help="keep printing new lines until interrupted")


def show_logs(arguments: Namespace) -> ExitCode:
    """Print the log. Exit code 1 if there is no log: the service was never started as a daemon."""
    path = load(arguments.config, arguments.overrides).notification.run_directory / NAME
    if not path.exists():
        say(f"{path} does not exist: the service has never run in the background")
        return ExitCode.FAILED
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
