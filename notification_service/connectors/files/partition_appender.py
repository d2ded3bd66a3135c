"""Appends requeued records to a `partition-N.jsonl` to which a producer may be appending too."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from guardian.headers import REQUEUED_FROM
from guardian.ports import TransportRefused
from notification_service.connectors.files.errors import translated
from notification_service.connectors.files.operations import FileOperations, write_all
from notification_service.connectors.files.scan import scan
from notification_service.connectors.line_format import Line, decode_line

_MENTION = REQUEUED_FROM.encode()


class Wanted(NamedTuple):
    """A line, with its newline, that must be in the file at `beyond` or later; None if the line's bytes are lost."""

    beyond: int
    line: bytes | None


class PartitionAppender:
    """Only ever appends, because a producer may be appending too. A half-written line is completed, never cut off."""

    def __init__(self, path: Path, files: FileOperations) -> None:
        self.path = path
        self._files = files

    def length(self) -> int:
        """Return the file's length after a sync: no power cut makes the file shorter, whichever process wrote it.

        Raises:
            TransportRefused: The file is missing, or its last line has no end.
        """
        with translated(self.path):
            descriptor = self._open(os.O_RDONLY)
            try:
                size = os.fstat(descriptor).st_size
                if size and self._files.read(descriptor, 1, size - 1) != b"\n":
                    raise self._torn(size)
                self._files.fsync(descriptor)
                return size
            finally:
                os.close(descriptor)

    def append_missing(self, wanted: Mapping[str, Wanted]) -> dict[str, int]:
        """Make sure that each of these lines is in the file once and durably; return where each begins.

        The lines are identified by the number in their header `requeued-from`; lines that are already there are left alone.
        The result omits lines that are absent and cannot be written: the line's bytes are lost, or another writer's bytes
        ended up inside the line.

        Raises:
            TransportRefused: The file cannot be used; the text says how to repair it.
            TransportUnavailable: No space, or the disk fails. Some lines may be written, one in part; the same call is safe.
        """
        found, tail_at = self._find(wanted, min(each.beyond for each in wanted.values()))
        missing = [each.line for number, each in wanted.items() if number not in found and each.line is not None]
        with translated(self.path):
            descriptor = self._open(os.O_RDWR | os.O_APPEND)
            try:
                if missing:
                    write_all(self._files, descriptor, self._completed(descriptor, tail_at, missing))
                # Lines that were found may be in memory only; the result promises that they are durable.
                self._files.fsync(descriptor)
            finally:
                os.close(descriptor)
        return found | self._find(wanted, tail_at)[0] if missing else found

    def _open(self, flags: int) -> int:
        """Open the file; never create it, because the service knows this file and would refuse a new one."""
        try:
            return self._files.open(self.path, flags)
        except FileNotFoundError as error:
            problem = "there is no such file any more. Put it back: a record belongs to the partition that it came from"
            raise TransportRefused(str(self.path), problem) from error

    def _find(self, wanted: Mapping[str, Wanted], start: int) -> tuple[dict[str, int], int]:
        """Return where the wanted lines behind `start` begin, and where the last complete line ends."""
        found: dict[str, int] = {}
        end = start
        for line in scan(self.path, self._files, start):
            end = line.start + (line.cut.length if line.cut else len(line.content)) + 1
            number = _find_requeued_from(line.content) if _MENTION in line.content else None
            if number is not None and number in wanted and line.start >= wanted[number].beyond:
                found.setdefault(number, line.start)
        return found, end

    def _completed(self, descriptor: int, tail_at: int, missing: list[bytes]) -> bytes:
        """Return the bytes to append. If the file ends in the beginning of a missing line, that line's rest comes first."""
        size = os.fstat(descriptor).st_size
        if size < tail_at:
            remedy = "it was cut or replaced after the requeue was begun. Restore it"
            raise TransportRefused(str(self.path), f"has {size} bytes where it had {tail_at}: {remedy}")
        # Whole lines may have been appended since the last scan; only bytes behind the last newline are torn.
        window = min(size - tail_at, max(map(len, missing)))
        tail = self._files.read(descriptor, window, size - window).rpartition(b"\n")[2]
        if not tail:
            return b"".join(missing)
        begun = next((line for line in missing if len(tail) < len(line) and line.startswith(tail)), None)
        if begun is None:
            raise self._torn(size)
        return begun[len(tail) :] + b"".join(line for line in missing if line is not begun)

    def _torn(self, size: int) -> TransportRefused:
        remedy = "wait until its producer has written the whole line; if the producer is gone, complete the line or cut it off"
        return TransportRefused(str(self.path), f"its last line, up to byte {size}, has no end; {remedy}, then try again")


def _find_requeued_from(content: bytes) -> str | None:
    read = decode_line(content)
    if not isinstance(read, Line):
        return None
    return next((value.decode("utf-8", "replace") for name, value in read.headers if name == REQUEUED_FROM), None)
