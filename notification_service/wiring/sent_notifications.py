"""The notifications of a unit that were sent: in the files of the output, or in the archive of the topics."""

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from time import monotonic
from typing import Protocol

import msgspec

from guardian.headers import (
    EVENT_NAME,
    GROUP_ID,
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
from notification_service.console.sources import (
    ON_KAFKA,
    ArrivedEarlier,
    not_known,
    not_known_on_kafka,
    not_searched,
    nothing_archived,
)
from notification_service.console.unit_story import Left, LeftNotification, SentBy, UnitsFound
from notification_service.jobs.topic_archive.local_reading import (
    ArchivedRecord,
    RecordsOfKey,
    find_path,
    find_records,
    find_records_with,
)
from resequencer.clock import instant_text
from resequencer.errors import ResequencerError
from resequencer.printable import printable
from resequencer.record import Headers, Origin, Partition

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
    end_to_end_id: str | None = msgspec.field(default=None, name="OrgnlEndToEndId")


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

        def take(line: Line) -> None:
            if find_unit(line.key, own_texts(line.headers)) == unit:
                found.append(read_notification(line.headers, line.content))

        searched, is_complete = self._search(unit, take, found, max_seconds)
        return Left(tuple(found), is_complete, searched)

    def find_sent_by(self, wanted: SentBy, max_seconds: float) -> UnitsFound:
        """Return the units of notifications in the newest part of the output. Never raises for files that cannot be read."""
        found: dict[str, None] = {}

        def take(line: Line) -> None:
            if (unit := unit_of_sent(wanted, line.key, line.headers, line.content)) is not None:
                found[unit] = None

        searched, is_complete = self._search(wanted.text, take, found, max_seconds)
        return UnitsFound(tuple(found), is_complete, searched)

    def _search(self, text: str, take: Callable[[Line], None], found: Collection[object], max_seconds: float) -> tuple[str, bool]:
        """Have `take` look at each line with this text. Return in words what was read, and whether that is all."""
        quoted = msgspec.json.encode(text)  # As it stands in a line.
        try:
            parts, skipped = self._newest()
            ends_at = monotonic() + max_seconds
            for number, content in enumerate(self._lines(parts)):
                if quoted in content and isinstance(line := decode_line(content), Line):
                    take(line)
                if len(found) >= _MAX_FOUND or (number % _LINES_AT_ONCE == 0 and monotonic() > ends_at):
                    return f"{self._path} in part: the time for it is over", False
        except (ResequencerError, OSError) as error:
            return f"not all could be read: {printable(str(error))}", False
        if skipped:
            return f"the newest {self._max_bytes // 1024**2} MB of the notifications in {self._path.parent}", False
        return f"all notifications in {self._path.parent}", True

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


def unit_of_sent(wanted: SentBy, key: bytes | None, headers: Headers, value: bytes) -> str | None:
    """Return the unit of a notification that has the name; None if it has another one."""
    texts = own_texts(headers)
    if wanted.notification_id:
        is_it = texts.get(NOTIFICATION_ID) == wanted.notification_id
    else:
        report = _find_report(value)
        transactions = [one for each in (report.instructions if report else ()) for one in each.transactions]
        is_it = any(each.end_to_end_id == wanted.end_to_end_id for each in transactions)
    return find_unit(key, texts) if is_it else None


def read_notification(headers: Headers, value: bytes, sent_to: str | None = None) -> LeftNotification:
    """Return what is shown of a notification; `sent_to` is its own position, if it has one."""
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
        sent_to,
        texts.get(GROUP_ID),
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


class SentLog(Protocol):
    """Where what was sent can be looked for. Both calls take about so many seconds at most, and never raise."""

    def find_sent(self, unit: str, max_seconds: float) -> Left: ...

    def find_sent_by(self, wanted: SentBy, max_seconds: float) -> UnitsFound: ...


def find_arrived_in(location: Path, topic: str, unit: str, max_seconds: float) -> ArrivedEarlier:
    """Return the records of the input that the archive at this path has under the unit's name as their key. Never raises."""
    if not location.is_dir():
        return nothing_archived(unit, max_seconds)
    try:
        found = find_records(location, topic, unit.encode(), max_seconds)
    except ResequencerError as error:
        return ArrivedEarlier({}, f"the archive could not be read: {printable(str(error))}")
    positions = {str(Origin(Partition(topic, each.partition), each.offset)): each.timestamp for each in found.records}
    part = "" if found.is_whole else " in part: the time for it is over"
    return ArrivedEarlier(
        positions, f"records in the archive {location}{part} whose key is the unit, and what waits, was sent or is dead"
    )


class NotReadable:
    """A place that cannot be searched, with the reason."""

    def __init__(self, why: str) -> None:
        self.find_sent = not_known(why)
        self.find_sent_by = not_searched(why)


def archived_output(location: str, topic: str, *, passes_through: bool = False) -> SentLog:
    """Return the log of what was sent in an archive at this path or URL. Of URLs, only `file:` ones are read.

    The text of another URL is not shown, because it may have a password in it. With `passes_through` a header may name the unit.
    """
    path = find_path(location)
    if path is None:
        scheme = location.partition("://")[0]
        return NotReadable(
            f"they are on a Kafka topic, and in its archive at an address that begins with {scheme}://. "
            "Only an archive at a path is read here"
        )
    return ArchivedOutput(path, topic, f"{OURS}{UNIT_OF_WORK}" if passes_through else None)


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
        notifications = tuple(read_notification(each.headers, each.value, self._place_of(each)) for each in records)
        return Left(notifications, is_complete=False, searched=self._searched(found))

    def find_sent_by(self, wanted: SentBy, max_seconds: float) -> UnitsFound:
        """Return the units of notifications that were archived. Those that were sent since are not known. Never raises."""
        if not self._location.is_dir():
            return not_searched(ON_KAFKA)()
        text = wanted.text.encode()
        prefix = OURS if self._header is not None else ""
        try:
            if wanted.notification_id:
                found = find_records(self._location, self._topic, text, max_seconds, f"{prefix}{NOTIFICATION_ID}")
            else:
                found = find_records_with(self._location, self._topic, msgspec.json.encode(wanted.end_to_end_id), max_seconds)
        except ResequencerError as error:
            return UnitsFound((), is_complete=False, searched=f"the archive could not be read: {printable(str(error))}")
        units = (unit_of_sent(wanted, each.key, each.headers, each.value) for each in found.records)
        return UnitsFound(tuple(dict.fromkeys(filter(None, units))), is_complete=False, searched=self._searched(found))

    def _place_of(self, record: ArchivedRecord) -> str:
        return str(Origin(Partition(self._topic, record.partition), record.offset))

    def _searched(self, found: RecordsOfKey) -> str:
        if found.archived_at is None:
            return f"the archive in {self._location}, which is empty yet"
        part = "" if found.is_whole else " in part: the time for it is over"
        return f"the archive in {self._location}{part}; what was sent after {instant_text(found.archived_at)} is not in it"
