"""One `partition-N.jsonl`, as the source reads it."""

import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec

from guardian.headers import REQUEUED_FROM
from guardian.ports import TransportRefused
from notification_service.connectors.files.input_archive import kept_from
from notification_service.connectors.files.line_reader import BEGINNING_BYTES, FoundLine, LineReader
from notification_service.connectors.files.operations import FileOperations, find_end_of_lines, translated, write_all
from notification_service.connectors.files.output import FACTS_FILE, facts_name, find_lasting_length
from notification_service.connectors.files.scan import scan
from notification_service.connectors.files.settings import FileSettings
from notification_service.connectors.line_format import Defect, Line, decode_line, is_blank
from resequencer.record import Cut, Origin, Partition, Record

_REMEDY = "Restore the file, or move it away and give new input an unused partition number"


class _Mark(msgspec.Struct, frozen=True, array_like=True):
    """The first 32 hexadecimal digits of the SHA-256 of the bytes from `start` to before `offset`, where reading goes on."""

    start: int
    offset: int
    digest: str


class PartitionFile:
    """Reads one partition's records up to its last complete line. Bytes behind that are searched for a newline only.

    The producer may append, and may cut off a torn line that its crash left; any other change is refused. Facts are read only as
    far as their writer has published them for good: of what is behind that, it may cut off whole lines.
    """

    def __init__(self, partition: Partition, path: Path, settings: FileSettings, files: FileOperations) -> None:
        self.partition = partition
        self.path = path
        self._settings = settings
        self._files = files
        self._descriptor: int | None = None
        self._identity: tuple[int, int] | None = None
        self.is_sought = False
        self._reader = LineReader(self._read, 0, settings.max_line_bytes)
        self._end = 0
        self._readable = 0
        self._searched = 0
        self._stamp: tuple[int, int] | None = None
        self._mark: _Mark | None = None

    @property
    def next_offset(self) -> int:
        """The start of the first line that was not yet taken."""
        return self._reader.offset

    def seek(self, offset: int, state: str = "") -> None:
        """Continue reading at `offset`. `state` is what `state` returned, maybe for another offset; empty before the first.

        Raises:
            TransportRefused: The file is shorter, no line starts at `offset`, or other bytes stand where `state` was read.
        """
        with translated(self.path):
            size = self._look().st_size
            if offset > size:
                raise self._refused(f"has {size} bytes but was read up to position {offset}: it was cut")
            if offset and self._read(1, offset - 1) != b"\n":
                raise self._refused(f"no line starts at position {offset} of its {size} bytes: it was edited")
            self._check(_find_mark(state))
            self._begin_at(offset)
            self._mark = self._marked()
        self.is_sought = True

    def state(self) -> str:
        """Return what a later reader of this partition gives to `seek`: a digest of the last bytes that were read."""
        self._mark = self._marked()
        return msgspec.json.encode(self._mark).decode()

    def find_end(self) -> int:
        """Return the offset after the last complete line. Costs one stat if the file is unchanged, else reads what was added.

        Raises:
            TransportRefused: The file is shorter than what was read of it, was rewritten, or was replaced by another file.
        """
        with translated(self.path):
            status = self._look()
            size, stamp = status.st_size, (status.st_size, status.st_mtime_ns)
            if stamp == self._stamp:
                return self._find_readable()
            if size < self.next_offset:
                raise self._refused(f"has {size} bytes but was read up to position {self.next_offset}: it was cut")
            self._check(self._mark)
            if size < self._end:
                # Complete lines that were not yet taken are gone, so their bytes read ahead must go too.
                self._begin_at(self.next_offset)
            if size <= self._searched:
                # A torn last line was cut off, and other bytes may have been written in its place.
                self._searched = self._end
            self._search_end(size)
            self._stamp = stamp
            return self._find_readable()

    def take(self, records: list[Record], max_records: int, max_bytes: int) -> int:
        """Append up to `max_records` records, or about `max_bytes`, to `records`; return the number of bytes consumed.

        Returns 0 only if no complete line is left before the last `find_end`. Records appended before an error count as read.
        """
        reader = self._reader
        start, limit = reader.progress, len(records) + max_records
        while len(records) < limit and reader.progress - start < max_bytes:
            line = reader.next_line()
            if line is None:
                with translated(self.path):
                    if not reader.fill(self._readable):
                        break
            elif line.cut or not is_blank(line.content):
                records.append(self._record(line))
        return reader.progress - start

    def close(self) -> None:
        """Close the file; its identity and the offset reached are kept."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _record(self, line: FoundLine) -> Record:
        origin = Origin(self.partition, line.start)
        if line.cut:
            return Record(origin, line.content[: self._settings.max_value_bytes], cut=line.cut)
        read = decode_line(line.content)
        if isinstance(read, Defect):
            return self._within_limit(Record(origin, line.content, defect=read.problem))
        return self._within_limit(Record(origin, read.value, read.key, read.headers))

    def _within_limit(self, record: Record) -> Record:
        value, limit = record.value, self._settings.max_value_bytes
        if value is None or len(value) <= limit:
            return record
        cut = Cut(len(value), sha256(value).hexdigest())
        return msgspec.structs.replace(record, value=value[: min(limit, BEGINNING_BYTES)], cut=cut)

    def _look(self) -> os.stat_result:
        """Return the file's status, after a check that the file is still the one opened first."""
        if self._descriptor is None:
            self._descriptor = self._files.open(self.path, os.O_RDONLY)
        opened, named = os.fstat(self._descriptor), os.stat(self.path)
        if self._identity is None:
            self._identity = _identity_of(opened)
        if {_identity_of(opened), _identity_of(named)} != {self._identity}:
            raise self._refused(
                f"was replaced by another file of {named.st_size} bytes after it was read up to position {self.next_offset}"
            )
        return opened

    def _begin_at(self, offset: int) -> None:
        """Start at `offset` and forget all that was known behind `offset`; bytes read ahead are read again."""
        start = kept_from(offset)
        self._reader = LineReader(self._read, offset, self._settings.max_line_bytes, self._read(offset - start, start))
        self._end = self._readable = self._searched = offset
        self._stamp = None

    def _marked(self) -> _Mark:
        """Return the mark of what was read. It is made of the bytes as they were read: they may be other ones by now.

        A hole that the archive has made is no part of it, so that the file can be made whole again.
        """
        offset = self.next_offset
        before = self._reader.before(offset - kept_from(offset)).lstrip(b"\0")
        return _Mark(offset - len(before), offset, _digest_of(before))

    def _check(self, mark: _Mark | None) -> None:
        """Refuse a file in which other bytes stand now. What the archive has cut since cannot be compared: it reads as zeros."""
        if mark is None or mark.start == mark.offset:
            return
        found = self._read(mark.offset - mark.start, mark.start)
        if not found.startswith(b"\0") and _digest_of(found) != mark.digest:
            raise self._refused(f"holds other bytes before position {mark.offset} than were read there: it was rewritten")

    def _find_readable(self) -> int:
        """Return the end of the complete lines that may be read: all of them, or those that their writer has published."""
        if self._settings.written_by is None or self.path.name != FACTS_FILE:
            self._readable = self._end
        elif self._readable < self._end:
            lasting = find_lasting_length(self._settings.written_by, facts_name(self.path.name))
            self._readable = min(self._end, max(self._readable, lasting))
        return self._readable

    def _search_end(self, size: int) -> None:
        """Find the last newline of what was added. No byte is searched twice."""
        assert self._descriptor is not None
        end = find_end_of_lines(self._files, self._descriptor, size, self._searched)
        if end > self._searched:
            self._end = end
        self._searched = size

    def _read(self, size: int, offset: int) -> bytes:
        assert self._descriptor is not None
        return self._files.read(self._descriptor, size, offset)

    def _refused(self, problem: str) -> TransportRefused:
        return TransportRefused(str(self.path), f"{problem}. {_REMEDY}")


def _find_mark(state: str) -> _Mark | None:
    """Return the mark in a state; None if there is none, as before the first mark, or another kind of source has written it."""
    try:
        return msgspec.json.decode(state, type=_Mark)
    except (msgspec.DecodeError, RecursionError):
        return None


def _digest_of(content: bytes) -> str:
    return sha256(content).hexdigest()[:32]


def _identity_of(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


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
        """Return the bytes to append. If the file ends in the beginning of a missing line, its remainder comes first."""
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
