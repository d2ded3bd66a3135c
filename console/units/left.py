"""What left of a unit: its notifications, where this program can read them."""

from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import msgspec

from connectors.files.operations import FileOperations
from connectors.files.rotated_names import find_rotated
from connectors.files.scan import scan
from connectors.line_format import Line, decode_line
from connectors.port import Channel
from console.units.story import Left, LeftNotification
from domain.errors import ResequencerError
from domain.headers import (
    EVENT_NAME,
    INCOMPLETE,
    LATE,
    NOTIFICATION_ID,
    POSSIBLE_DUPLICATE,
    PROCESS_FLOW_NAME,
    SOURCE_POSITION,
    texts_of,
)
from domain.printable import printable
from domain.record import Headers

MOST_BYTES = 256 * 1024 * 1024
"""So much of the output is read at most, its newest part."""

_MOST = 2_000
_LINES_AT_ONCE = 256
_MARKS = (INCOMPLETE, LATE, POSSIBLE_DUPLICATE)


def left_unknown(unit: str, most_seconds: float) -> Left:
    """Return what is known where the notifications are on Kafka: nothing, for a topic has no index of its keys."""
    del unit, most_seconds
    why = "not known here: the notifications are on a Kafka topic, which can be read only as a whole; `archive-topics` keeps them"
    return Left((), is_complete=False, searched=why)


class _Group(msgspec.Struct):
    created: str | None = msgspec.field(default=None, name="CreDtTm")


class _Report(msgspec.Struct):
    group: _Group | None = msgspec.field(default=None, name="GrpHdr")


class _Document(msgspec.Struct):
    report: _Report | None = msgspec.field(default=None, name="CstmrPmtStsRpt")


class OutputFiles:
    """The notifications of an output directory, the rotated ones included. The service may be appending meanwhile."""

    def __init__(self, directory: Path, files: FileOperations, most_bytes: int = MOST_BYTES) -> None:
        self._path = directory / f"{Channel.NOTIFICATIONS}.jsonl"
        self._files = files
        self._most_bytes = most_bytes

    def find_left(self, unit: str, most_seconds: float) -> Left:
        """Return the unit's notifications in the newest part of the output. Never raises for files that cannot be read."""
        found: list[LeftNotification] = []
        try:
            parts, skipped = self._newest()
            ends_at = monotonic() + most_seconds
            for number, line in enumerate(self._lines(parts)):
                if unit_key(unit) in line and (told := _read(line, unit)) is not None:
                    found.append(told)
                if len(found) >= _MOST or (number % _LINES_AT_ONCE == 0 and monotonic() > ends_at):
                    return Left(tuple(found), is_complete=False, searched=f"{self._path} in part: the time for it is over")
        except (ResequencerError, OSError) as error:
            return Left(tuple(found), is_complete=False, searched=f"not all could be read: {printable(str(error))}")
        if skipped:
            what = f"the newest {self._most_bytes // 1024**2} MB of the notifications in {self._path.parent}"
            return Left(tuple(found), is_complete=False, searched=what)
        return Left(tuple(found), is_complete=True, searched=f"all notifications in {self._path.parent}")

    def _newest(self) -> tuple[list[tuple[Path, int]], bool]:
        """Return files, each with the byte to begin at, oldest first, and whether there is more before them."""
        room = self._most_bytes
        parts: list[tuple[Path, int]] = []
        everything = [*(each.path for each in find_rotated(self._path)), *([self._path] if self._path.exists() else [])]
        for path in reversed(everything):
            size = path.stat().st_size
            parts.insert(0, (path, max(0, size - room)))
            room -= size
            if room <= 0:
                break
        return parts, len(parts) < len(everything) or any(start for _, start in parts)

    def _lines(self, parts: list[tuple[Path, int]]) -> Iterator[bytes]:
        for path, start in parts:
            lines = scan(path, self._files, start)
            if start:
                next(lines, None)  # It begins in the middle of a line.
            yield from (each.content for each in lines)


def unit_key(unit: str) -> bytes:
    """Return the unit as it stands in a line, between quotes."""
    return msgspec.json.encode(unit)


def _read(line: bytes, unit: str) -> LeftNotification | None:
    read = decode_line(line)
    if not isinstance(read, Line) or read.key != unit.encode():
        return None
    return left_notification(read.headers, read.value)


def left_notification(headers: Headers, value: bytes) -> LeftNotification:
    texts = texts_of(headers)
    marks = tuple(f"{name} {texts[name]}" if name == INCOMPLETE else name for name in _MARKS if name in texts)
    return LeftNotification(
        texts.get(NOTIFICATION_ID, ""),
        texts.get(EVENT_NAME, ""),
        texts.get(PROCESS_FLOW_NAME, ""),
        texts.get(SOURCE_POSITION, ""),
        marks,
        _find_creation(value),
    )


def _find_creation(value: bytes) -> str | None:
    try:
        report = msgspec.json.decode(value, type=_Document).report
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return report.group.created if report and report.group else None
