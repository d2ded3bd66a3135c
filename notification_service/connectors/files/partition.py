"""One `partition-N.jsonl`, as the source reads it."""

import os
from hashlib import sha256
from pathlib import Path

import msgspec

from guardian.ports import TransportRefused
from notification_service.connectors.files.archived_marker import kept_from
from notification_service.connectors.files.errors import translated
from notification_service.connectors.files.lasting_length import FACTS_FILE, facts_name, find_lasting_length
from notification_service.connectors.files.line_reader import BEGINNING_BYTES, FoundLine, LineReader
from notification_service.connectors.files.operations import FileOperations
from notification_service.connectors.files.settings import FileSettings
from notification_service.connectors.line_format import Defect, decode_line, is_blank
from resequencer.record import Cut, Origin, Partition, Record

_REMEDY = "Restore the file, or move it away and give new input an unused partition number"
_SEARCH_BYTES = 64 * 1024


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
        start, most = reader.progress, len(records) + max_records
        while len(records) < most and reader.progress - start < max_bytes:
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
        if len(value) <= limit:
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
        """Search the last newline backwards, so that a large backlog costs one block. No byte is searched twice."""
        stop = size
        while stop > self._searched:
            start = max(self._searched, stop - _SEARCH_BYTES)
            at = self._read(stop - start, start).rfind(b"\n")
            if at >= 0:
                self._end = start + at + 1
                break
            stop = start
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
