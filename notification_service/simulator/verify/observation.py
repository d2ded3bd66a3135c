"""Reads the service's output: one notification or dead letter per line."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from guardian.headers import (
    DEAD_LETTER_REASON,
    DEAD_LETTER_SOURCE_POSITION,
    ENVELOPE_ID,
    EVENT_NAME,
    INCOMPLETE,
    LATE,
    NOTIFICATION_ID,
    ORIGINAL,
    OURS,
    POSSIBLE_DUPLICATE,
    PROCESS_FLOW_NAME,
    RELEASED_BY,
    REQUEUED_FROM,
    SOURCE_POSITION,
    find_unit,
    own_texts,
    texts_of,
)
from guardian.ports import TransportRefused
from notification_service.connectors.files.rotated_names import Rotated, find_rotated
from notification_service.connectors.line_format import Defect, Line, decode_line
from notification_service.simulator.expectation import record_digest
from notification_service.simulator.generate.pain001 import XmlRefused, parse_iso_xml
from resequencer.record import Headers, Origin


class ObservedReport(msgspec.Struct, frozen=True):
    """The content of a pain.002; None for what it does not contain. `reason` is an ISO code or a proprietary one."""

    message_id: str | None = None
    original_message_id: str | None = None
    original_payment_information_id: str | None = None
    original_end_to_end_id: str | None = None
    status: str | None = None
    reason: str | None = None


class ObservedNotification(msgspec.Struct, frozen=True):
    """A notification by its key (the unit) and headers; `report` is None if the value is no report.

    `partition` is that of its source position; None without a valid one. `digest` is that of the record that came, if this is one
    that leaves as it came.
    """

    unit: str
    notification_id: str
    envelope_id: str | None
    event: str | None
    flow: str | None
    partition: int | None
    incomplete: str | None
    is_late: bool
    is_possible_duplicate: bool
    report: ObservedReport | None
    is_released_by_order: bool = False
    digest: str | None = None

    @property
    def named(self) -> str:
        """The id, and the event if a header names one."""
        return self.notification_id if self.event is None else f"{self.notification_id} ({self.event})"


class ObservedDeadLetter(msgspec.Struct, frozen=True):
    """A dead letter by its headers; `position` is its record's partition and offset, None if it names none.

    `is_requeued` is set if the record came from a requeue of an earlier dead letter.
    """

    reason: str
    position: tuple[int, int] | None
    is_possible_duplicate: bool
    is_requeued: bool = False


def read_notification(line: bytes) -> ObservedNotification | Defect:
    """Read a notification from a line without its newline."""
    read = decode_line(line)
    if isinstance(read, Defect):
        return read
    headers = own_texts(read.headers)
    identifier, unit = headers.get(NOTIFICATION_ID), find_unit(read.key, headers)
    if unit is None or identifier is None:
        return Defect(f"no key or no header {NOTIFICATION_ID}")
    is_passed_through = any(name.startswith(OURS) for name, _ in read.headers)
    position = _position(headers.get(SOURCE_POSITION))
    return ObservedNotification(
        unit=unit,
        notification_id=identifier,
        envelope_id=headers.get(ENVELOPE_ID),
        event=headers.get(EVENT_NAME),
        flow=headers.get(PROCESS_FLOW_NAME),
        partition=position and position[0],
        incomplete=headers.get(INCOMPLETE),
        is_late=LATE in headers,
        is_possible_duplicate=POSSIBLE_DUPLICATE in headers,
        report=None if is_passed_through else _find_report(read.content),
        is_released_by_order=RELEASED_BY in headers,
        digest=_digest_of_what_came(read) if is_passed_through else None,
    )


def _digest_of_what_came(line: Line) -> str:
    """Return the digest of the record as it came; if one of ours is in front of one of its own, that of the whole record."""
    own = tuple(each for each in line.headers if each[0].startswith(ORIGINAL) or not each[0].startswith(OURS))
    if own != line.headers[: len(own)]:
        return record_digest(line.key, line.headers, line.value)
    came: Headers = tuple((name.replace(ORIGINAL, OURS, 1) if name.startswith(ORIGINAL) else name, value) for name, value in own)
    return record_digest(line.key, came, line.value)


def read_dead_letter(line: bytes) -> ObservedDeadLetter | Defect:
    """Read a dead letter from a line without its newline."""
    read = decode_line(line)
    if isinstance(read, Defect):
        return read
    headers = texts_of(read.headers)
    return ObservedDeadLetter(
        headers.get(DEAD_LETTER_REASON, ""),
        _position(headers.get(DEAD_LETTER_SOURCE_POSITION)),
        POSSIBLE_DUPLICATE in headers,
        REQUEUED_FROM in headers,
    )


def _position(text: str | None) -> tuple[int, int] | None:
    found = Origin.find(text or "")
    return (found.partition.number, found.offset) if found else None


def _find_report(value: bytes) -> ObservedReport | None:
    """Return the report in the value, for any of the three target types that have one."""
    try:
        tree: Any = parse_iso_xml(value).tree if value.lstrip().startswith(b"<") else msgspec.json.decode(value)
    except (XmlRefused, msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    if isinstance(tree, Mapping) and "CstmrPmtStsRpt" not in tree:
        tree = tree.get("report")
    report = _at(tree, "CstmrPmtStsRpt")
    if report is None:
        return None
    payment = _at(report, "OrgnlPmtInfAndSts")
    transaction = _at(payment, "TxInfAndSts")
    reason = _at(transaction, "StsRsnInf", "Rsn")
    return ObservedReport(
        _text(report, "GrpHdr", "MsgId"),
        _text(report, "OrgnlGrpInfAndSts", "OrgnlMsgId"),
        _text(payment, "OrgnlPmtInfId"),
        _text(transaction, "OrgnlEndToEndId"),
        _text(transaction, "TxSts"),
        _text(reason, "Cd") or _text(reason, "Prtry"),
    )


def _at(tree: Any, *tags: str) -> Any:
    """Return the element at the path, the first if it repeats; None if it is absent."""
    for tag in tags:
        tree = tree.get(tag) if isinstance(tree, Mapping) else None
        if isinstance(tree, list):
            tree = tree[0] if tree else None
    return tree


def _text(tree: Any, *tags: str) -> str | None:
    found = _at(tree, *tags)
    return found if isinstance(found, str) else None


class TailedFile:
    """Returns each complete line once, those of rotated files first.

    The file may be missing at first, and may be replaced any number of times between two looks.

    Raises:
        TransportRefused: The file cannot be read, or is shorter than what was read of it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO | None = None
        self._offset = 0
        # The highest number of the files rotated before the open one.
        self._number = 0

    def lines(self, limit: int) -> Iterator[bytes]:
        """Yield up to `limit` lines, without newlines; fewer only if there are no more now."""
        for _ in range(limit):
            try:
                line = self._next_line()
            except OSError as error:
                raise TransportRefused(str(self.path), f"{error.strerror or error}") from error
            if line is None:
                return
            yield line

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _next_line(self) -> bytes | None:
        """Return the next line. The open file is read to its end before the one that replaced it."""
        while True:
            if self._file is None and not self._open_next():
                return None
            assert self._file is not None
            line = self._read_line(self._file)
            if line is not None or not self._is_replaced(self._file):
                return line
            # The writer may have appended until the replacement.
            line = self._read_line(self._file)
            if line is not None or not self._open_next():
                return line

    def _read_line(self, file: BinaryIO) -> bytes | None:
        line = file.readline()
        if line.endswith(b"\n"):
            self._offset += len(line)
            return line[:-1]
        # The remainder of the line may follow.
        file.seek(self._offset)
        return None

    def _open_next(self) -> bool:
        """Open the next file: the first rotated behind the open one, else the current one unless it is being rotated."""
        while True:
            behind = self._rotated_behind(self._file)
            try:
                file = (behind[0].path if behind else self.path).open("rb")
            except FileNotFoundError:
                if behind:
                    continue  # It was deleted meanwhile.
                return False
            meanwhile = [] if behind else self._rotated_behind(self._file)
            if meanwhile and not _is(meanwhile[0].path, file):
                file.close()
                continue
            self._number = behind[0].number if behind else self._number
            # Not earlier: while the old file is open, no other file can get its inode.
            self.close()
            self._file, self._offset = file, 0
            return True

    def _rotated_behind(self, file: BinaryIO | None) -> list[Rotated]:
        """Return the files rotated after `file`, in order. If `file` was rotated itself, note its number."""
        rotated = find_rotated(self.path, after=self._number)
        own = next((each.number for each in rotated if file is not None and _is(each.path, file)), 0)
        self._number = max(self._number, own)
        return [each for each in rotated if each.number > own]

    def _is_replaced(self, file: BinaryIO) -> bool:
        status = os.fstat(file.fileno())
        if status.st_size < self._offset:
            raise TransportRefused(str(self.path), f"it has {status.st_size} bytes, but {self._offset} were read: it was cut")
        return self.path.exists() and not _is(self.path, file)


def _is(path: Path, file: BinaryIO) -> bool:
    """Return whether the path names this open file."""
    try:
        named, opened = path.stat(), os.fstat(file.fileno())
    except FileNotFoundError:
        return False
    return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)
