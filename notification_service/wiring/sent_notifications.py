"""The notifications of a unit that were sent: in the files of the output, or in the archive of the topics."""

from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

import msgspec

from guardian.headers import (
    EVENT_NAME,
    INCOMPLETE,
    LATE,
    NOTIFICATION_ID,
    OURS,
    POSSIBLE_DUPLICATE,
    PROCESS_FLOW_NAME,
    RELEASED_BY,
    SOURCE_POSITION,
    UNIT_OF_WORK,
    find_unit,
    own_texts,
)
from guardian.ports import Channel
from notification_service.connectors.files.operations import FileOperations
from notification_service.connectors.files.rotated_names import find_rotated
from notification_service.connectors.files.scan import scan
from notification_service.connectors.line_format import Line, decode_line
from notification_service.console.sources import not_known, not_known_on_kafka
from notification_service.console.unit_story import Left, LeftNotification
from notification_service.jobs.topic_archive.local_reading import find_path, find_records
from resequencer.clock import instant_text
from resequencer.errors import ResequencerError
from resequencer.printable import printable
from resequencer.record import Headers

MAX_BYTES = 256 * 1024 * 1024
"""How many bytes of the output are read at most: its newest part."""

_MAX_FOUND = 2_000
_LINES_AT_ONCE = 256
_MARKS = (INCOMPLETE, RELEASED_BY, LATE, POSSIBLE_DUPLICATE)
_WITH_VALUE = (INCOMPLETE, RELEASED_BY)


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

    def find_sent(self, unit: str, max_seconds: float) -> Left:
        """Return the unit's notifications in the newest part of the output. Never raises for files that cannot be read."""
        found: list[LeftNotification] = []
        quoted = msgspec.json.encode(unit)  # As the unit stands in a line.
        try:
            parts, skipped = self._newest()
            ends_at = monotonic() + max_seconds
            for number, line in enumerate(self._lines(parts)):
                if quoted in line and (notification := _read(line, unit)) is not None:
                    found.append(notification)
                if len(found) >= _MAX_FOUND or (number % _LINES_AT_ONCE == 0 and monotonic() > ends_at):
                    return Left(tuple(found), is_complete=False, searched=f"{self._path} in part: the time for it is over")
        except (ResequencerError, OSError) as error:
            return Left(tuple(found), is_complete=False, searched=f"not all could be read: {printable(str(error))}")
        if skipped:
            what = f"the newest {self._max_bytes // 1024**2} MB of the notifications in {self._path.parent}"
            return Left(tuple(found), is_complete=False, searched=what)
        return Left(tuple(found), is_complete=True, searched=f"all notifications in {self._path.parent}")

    def _newest(self) -> tuple[list[tuple[Path, int]], bool]:
        """Return files, each with the byte to begin at, oldest first, and whether there is more before them."""
        budget = self._max_bytes
        parts: list[tuple[Path, int]] = []
        everything = [*(each.path for each in find_rotated(self._path)), *([self._path] if self._path.exists() else [])]
        for path in reversed(everything):
            size = path.stat().st_size
            parts.insert(0, (path, max(0, size - budget)))
            budget -= size
            if budget <= 0:
                break
        return parts, len(parts) < len(everything) or any(start for _, start in parts)

    def _lines(self, parts: list[tuple[Path, int]]) -> Iterator[bytes]:
        for path, start in parts:
            lines = scan(path, self._files, start)
            if start:
                next(lines, None)  # It begins in the middle of a line.
            yield from (each.content for each in lines)


def _read(line: bytes, unit: str) -> LeftNotification | None:
    read = decode_line(line)
    if not isinstance(read, Line) or find_unit(read.key, own_texts(read.headers)) != unit:
        return None
    return read_notification(read.headers, read.content)


def read_notification(headers: Headers, value: bytes) -> LeftNotification:
    texts, report = own_texts(headers), _find_report(value)
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


def find_sent_in(location: str, topic: str, *, passes_through: bool = False) -> Callable[[str, float], Left]:
    """Return how to look for what was sent in an archive at this path or URL. Of URLs, only `file:` ones are read.

    The text of another URL is not shown, because it may have a password in it. With `passes_through` a header may name the unit.
    """
    path = find_path(location)
    if path is None:
        scheme = location.partition("://")[0]
        return not_known(
            f"they are on a Kafka topic, and in its archive at an address that begins with {scheme}://. "
            "Only an archive at a path is read here"
        )
    return ArchivedOutput(path, topic, f"{OURS}{UNIT_OF_WORK}" if passes_through else None).find_sent


class ArchivedOutput:
    """Reads the archive of the topic of notifications at a path, if there is one. A record's unit is its key, or in `header`."""

    def __init__(self, location: Path, topic: str, header: str | None = None) -> None:
        self._location = location
        self._topic = topic
        self._header = header

    def find_sent(self, unit: str, max_seconds: float) -> Left:
        """Return the unit's notifications that were archived. Those that were sent since are not known. Never raises."""
        if not self._location.is_dir():
            return not_known_on_kafka(unit, max_seconds)
        try:
            found = find_records(self._location, self._topic, unit.encode(), max_seconds, self._header)
        except ResequencerError as error:
            return Left((), is_complete=False, searched=f"the archive could not be read: {printable(str(error))}")
        records = [each for each in found.records if find_unit(each.key, own_texts(each.headers)) == unit]
        notifications = tuple(read_notification(each.headers, each.value) for each in records)
        if found.archived_at is None:
            return Left((), is_complete=False, searched=f"the archive in {self._location}, which is empty yet")
        part = "" if found.is_whole else " in part: the time for it is over"
        searched = f"the archive in {self._location}{part}; what was sent after {instant_text(found.archived_at)} is not in it"
        return Left(notifications, is_complete=False, searched=searched)
