"""The notifications of a unit that were sent, where this program can read them."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from time import monotonic

import msgspec

from guardian.headers import (
    EVENT_NAME,
    INCOMPLETE,
    LATE,
    NOTIFICATION_ID,
    POSSIBLE_DUPLICATE,
    PROCESS_FLOW_NAME,
    RELEASED_BY,
    SOURCE_POSITION,
    texts_of,
)
from guardian.ports import Channel
from notification_service.connectors.files.operations import FileOperations
from notification_service.connectors.files.rotated_names import find_rotated
from notification_service.connectors.files.scan import scan
from notification_service.connectors.line_format import Line, decode_line
from notification_service.console.unit_story import Incomplete, Left, LeftNotification
from resequencer.errors import ResequencerError
from resequencer.printable import printable
from resequencer.record import Headers

MAX_BYTES = 256 * 1024 * 1024
"""The most bytes of the output that are read: its newest part."""

_MOST = 2_000
_LINES_AT_ONCE = 256
_MARKS = (INCOMPLETE, RELEASED_BY, LATE, POSSIBLE_DUPLICATE)
_WITH_VALUE = (INCOMPLETE, RELEASED_BY)


def left_unknown(unit: str, max_seconds: float) -> Left:
    """Return what is known where the notifications are on Kafka: nothing, for a topic has no index of its keys."""
    del unit, max_seconds
    why = "not known here: they are on a Kafka topic, which can be read only as a whole; `archive-topics` makes a copy to search"
    return Left((), is_complete=False, searched=why)


def left_elsewhere(scheme: str, unit: str, max_seconds: float) -> Left:
    """Return what is known where the archive lies in a file system that the console does not read: nothing, and why."""
    del unit, max_seconds
    why = f"not known here: they are on a Kafka topic, and in its archive at an address that begins with {scheme}://"
    return Left((), is_complete=False, searched=f"{why}. Only an archive at a path is read here")


def left_in_queue(place: str, unit: str, max_seconds: float) -> Left:
    """Return what is known where the notifications are with brokers of messages alone: nothing, for readers take them away.

    `place` is a queue or a topic of MQTT.
    """
    del unit, max_seconds
    return Left((), is_complete=False, searched=f"not known here: they are in the {place}, whose readers take them away")


class _Group(msgspec.Struct):
    created: str | None = msgspec.field(default=None, name="CreDtTm")


class _OriginalGroup(msgspec.Struct):
    status: str | None = msgspec.field(default=None, name="GrpSts")


class _Transaction(msgspec.Struct):
    status: str | None = msgspec.field(default=None, name="TxSts")


class _Instruction(msgspec.Struct):
    status: str | None = msgspec.field(default=None, name="PmtInfSts")
    transactions: tuple[_Transaction, ...] = msgspec.field(default=(), name="TxInfAndSts")


class _Report(msgspec.Struct):
    group: _Group | None = msgspec.field(default=None, name="GrpHdr")
    original: _OriginalGroup | None = msgspec.field(default=None, name="OrgnlGrpInfAndSts")
    instructions: tuple[_Instruction, ...] = msgspec.field(default=(), name="OrgnlPmtInfAndSts")


class _Document(msgspec.Struct):
    report: _Report | None = msgspec.field(default=None, name="CstmrPmtStsRpt")


class OutputFiles:
    """The notifications of an output directory, the rotated ones included. The service may be appending meanwhile."""

    def __init__(self, directory: Path, files: FileOperations, max_bytes: int = MAX_BYTES) -> None:
        self._path = directory / f"{Channel.NOTIFICATIONS}.jsonl"
        self._files = files
        self._max_bytes = max_bytes

    def find_left(self, unit: str, max_seconds: float) -> Left:
        """Return the unit's notifications in the newest part of the output. Never raises for files that cannot be read."""
        found: list[LeftNotification] = []
        try:
            parts, skipped = self._newest()
            ends_at = monotonic() + max_seconds
            for number, line in enumerate(self._lines(parts)):
                if unit_key(unit) in line and (told := _read(line, unit)) is not None:
                    found.append(told)
                if len(found) >= _MOST or (number % _LINES_AT_ONCE == 0 and monotonic() > ends_at):
                    return Left(tuple(found), is_complete=False, searched=f"{self._path} in part: the time for it is over")
        except (ResequencerError, OSError) as error:
            return Left(tuple(found), is_complete=False, searched=f"not all could be read: {printable(str(error))}")
        if skipped:
            what = f"the newest {self._max_bytes // 1024**2} MB of the notifications in {self._path.parent}"
            return Left(tuple(found), is_complete=False, searched=what)
        return Left(tuple(found), is_complete=True, searched=f"all notifications in {self._path.parent}")

    def _newest(self) -> tuple[list[tuple[Path, int]], bool]:
        """Return files, each with the byte to begin at, oldest first, and whether there is more before them."""
        room = self._max_bytes
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
    texts, report = texts_of(headers), _find_report(value)
    marks = tuple(f"{name} {texts[name]}" if name in _WITH_VALUE else name for name in _MARKS if name in texts)
    return LeftNotification(
        texts.get(NOTIFICATION_ID, ""),
        texts.get(EVENT_NAME, ""),
        texts.get(PROCESS_FLOW_NAME, ""),
        texts.get(SOURCE_POSITION, ""),
        marks,
        report.group.created if report and report.group else None,
        None if report is None else ", ".join(dict.fromkeys(_statuses(report))) or None,
    )


def incomplete_of(left: Iterable[LeftNotification]) -> tuple[Incomplete, ...]:
    """Return what left although something was missing: one entry for each text of the mark `incomplete`."""
    found: dict[str, Incomplete] = {}
    for each in left:
        for mark in each.marks:
            name, _, missing = mark.partition(" ")
            if name == INCOMPLETE:
                before = found.get(missing, Incomplete(missing, each.created_at, 0))
                found[missing] = msgspec.structs.replace(before, notifications=before.notifications + 1)
    return tuple(found.values())


def _find_report(value: bytes) -> _Report | None:
    try:
        return msgspec.json.decode(value, type=_Document).report
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _statuses(report: _Report) -> Iterator[str]:
    if report.original and report.original.status:
        yield report.original.status
    for each in report.instructions:
        yield from (status for status in (each.status, *(one.status for one in each.transactions)) if status)
