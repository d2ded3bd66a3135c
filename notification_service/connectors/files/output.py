"""One append-only output file: how far its content is valid, and recovery from a crash or a failed write."""

import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from guardian.ports import Channel, TransportRefused
from notification_service.connectors.files.line_reader import LineReader
from notification_service.connectors.files.operations import FileOperations, read_chunks, sync_directory, translated, write_all
from notification_service.connectors.files.positions import FoundNumbers, find_number
from resequencer.record import Partition

_LONGEST_LINE_BYTES = 256 * 1024 * 1024
_REMEDY = "Restore the missing part, or move the file away: the service then starts a new one"
_LOG = logging.getLogger("resequencer.connectors")

Numbers = dict[Partition, frozenset[int]]


class OutputFile:
    """Appends whole lines durably, or leaves the file as it was.

    A file that was moved away (by the service or by another program) or emptied is started again. Complete lines behind the
    known length have been published; their numbers are returned. A last line without its end was never acknowledged and is cut
    off. `length` is the valid length in bytes. `is_begun_again` stays true until the caller has stored the new length and
    resets it. `before` is how many bytes the files had that were moved away, emptied or rotated before this one. `name` is the
    name under which both are stored, by default that of the file.
    """

    def __init__(self, path: Path, files: FileOperations, name: str | None = None) -> None:
        self.path = path
        self.name = name or path.name
        self.length = self.before = 0
        self.is_begun_again = False
        self._files = files
        self._descriptor: int | None = None
        self._is_torn = False

    def open(self, length: int) -> Numbers:
        """Open and repair the file; return the numbers of the lines beyond `length`, the length that the caller knows.

        Raises:
            TransportRefused: The file is not empty but shorter than `length`, or no line ends at `length`.
        """
        with translated(self.path):
            self.close()
            self._open()
            self.length = length
            return self._recover()

    def revisit(self) -> Numbers:
        """Prepare an append: cut off or adopt what the last append has written, and start again if the file was moved away.

        Returns numbers as `open` does.
        """
        with translated(self.path):
            if self._is_torn:
                self._cut_back()
                self._is_torn = False
            if self._was_moved():
                _LOG.warning("%s was moved away when it had %d bytes; starting a new file", self.path, self.length)
                moved = self._begin_again()
                numbers = self.open(0)
                # What is there already was moved away and put back, or is another program's: it was not written in addition.
                self.before -= min(moved, self.length)
                return numbers
            return self._recover()

    def append(self, lines: bytes) -> None:
        """Append the lines durably, all or none. Call `revisit` first.

        Raises:
            TransportUnavailable: No space, or the disk fails; none of the lines counts.
        """
        with translated(self.path):
            self._is_torn = True
            try:
                write_all(self._files, self._opened, lines)
                self._files.fsync(self._opened)
            except OSError:
                # Bytes in memory after a failed fsync may never reach the disk, so the lines are written again.
                with suppress(OSError):
                    self._cut_back()
                raise
            self._is_torn = False
            self.length += len(lines)

    def move_to(self, target: Path) -> None:
        """Rename the file to `target` and start a new one. Call `revisit` first.

        Raises:
            TransportUnavailable: The file has its old name or the new one; `revisit` finds out which.
        """
        with translated(self.path):
            self._files.replace(self.path, target)
            self.close()
            self._open()
            self._begin_again()

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @property
    def _opened(self) -> int:
        assert self._descriptor is not None
        return self._descriptor

    def _open(self) -> None:
        self._descriptor = self._files.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        sync_directory(self._files, self.path.parent)

    def _begin_again(self) -> int:
        """Note that the file has ended; return how long it was."""
        ended, self.length = self.length, 0
        self.before += ended
        self.is_begun_again = True
        return ended

    def _cut_back(self) -> None:
        # Never extend the file: one that was emptied meanwhile would be filled with zeros.
        if os.fstat(self._opened).st_size > self.length:
            self._files.truncate(self._opened, self.length)

    def _was_moved(self) -> bool:
        if self._descriptor is None:
            return True
        opened = os.fstat(self._descriptor)
        try:
            named = os.stat(self.path)
        except FileNotFoundError:
            return True
        return (named.st_dev, named.st_ino) != (opened.st_dev, opened.st_ino)

    def _recover(self) -> Numbers:
        size = os.fstat(self._opened).st_size
        if size == 0 and self.length:
            _LOG.warning("%s is empty but %d bytes had been written; starting it again", self.path, self.length)
            self._begin_again()
        if size < self.length:
            raise self._refused(f"has {size} bytes where {self.length} were written: it was cut")
        if size == self.length:
            return {}
        if self.length and self._read(1, self.length - 1) != b"\n":
            raise self._refused(f"no line ends at byte {self.length}, where the last write ended: it was edited")
        return self._adopt(size)

    def _adopt(self, size: int) -> Numbers:
        """Accept the complete lines behind the known length, in chunks, and cut off what is behind them."""
        numbers, unnumbered, end = self._look_through(size)
        if unnumbered:
            _LOG.warning(
                "%s: %d line%s without a number from byte %d on; kept as they are",
                self.path,
                unnumbered,
                "" if unnumbered == 1 else "s",
                self.length,
            )
        if end < size:
            _LOG.warning("%s ends in a torn line of %d bytes; cutting it off", self.path, size - end)
            self._keep_lines(end, size)
            self._files.truncate(self._opened, end)
        self._write_again(self.length, end)
        self.length = end
        return numbers.by_partition()

    def _keep_lines(self, start: int, end: int) -> None:
        """Keep what is to be cut off in a file beside this one, if there are whole lines in it.

        Those of a write that a power cut has torn come again. But if the positions were lost the whole file is looked through,
        and they may have been written long ago.
        """
        if not any(b"\n" in chunk for chunk in read_chunks(self._files, self._opened, start, end)):
            return
        kept = self.path.with_name(f"{self.path.name}.{start}.cut")
        descriptor = self._files.open(kept, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            self._copy(descriptor, start, end)
        finally:
            os.close(descriptor)
        sync_directory(self._files, kept.parent)
        _LOG.warning("%s: what is cut off holds whole lines; it is kept in %s", self.path, kept)

    def _look_through(self, size: int) -> tuple[FoundNumbers, int, int]:
        """Return the numbers behind the known length, the count of lines without a number, and the end of the last whole line.

        A line with a zero byte was torn by a power cut, which may keep the end of the last write and lose its beginning.
        """
        numbers, unnumbered = FoundNumbers(), 0
        reader = LineReader(self._read, self.length, _LONGEST_LINE_BYTES)
        while True:
            line = reader.next_line()
            if line is None:
                if not reader.fill(size):
                    return numbers, unnumbered, reader.offset
            elif b"\0" in line.content:
                return numbers, unnumbered, line.start
            elif (found := find_number(line.content)) is None:
                unnumbered += 1
            else:
                numbers.add(*found)

    def _write_again(self, start: int, end: int) -> None:
        """Write the same bytes over themselves and sync them; from then on they count.

        After a failed sync the operating system may show bytes as written that the disk does not have. A further sync alone
        would not write them.
        """
        descriptor = self._files.open(self.path, os.O_WRONLY)
        try:
            os.lseek(descriptor, start, os.SEEK_SET)
            self._copy(descriptor, start, end)
        finally:
            os.close(descriptor)

    def _copy(self, descriptor: int, start: int, end: int) -> None:
        for chunk in read_chunks(self._files, self._opened, start, end):
            write_all(self._files, descriptor, chunk)
        self._files.fsync(descriptor)

    def _read(self, size: int, offset: int) -> bytes:
        return self._files.read(self._opened, size, offset)

    def _refused(self, problem: str) -> TransportRefused:
        return TransportRefused(str(self.path), f"{problem}. {_REMEDY}")


FACTS_FILE = "partition-0.jsonl"
"""The file to which the service writes its facts. Others beside it are written by whoever gives commands, and stay."""


class _Lengths(msgspec.Struct, gc=False):
    lengths: dict[str, int] = {}
    before: dict[str, int] = {}


_decode = msgspec.json.Decoder(_Lengths).decode


def facts_name(file: str) -> str:
    """Return the name of a file of facts among the lengths. Files of the output directory have no slash in their names."""
    return f"{Channel.FACTS}/{file}"


class Written(NamedTuple):
    """How many bytes the files of an output had before its present one, and how many that one has."""

    before: int
    length: int


def find_written(positions: Path, name: str) -> Written | None:
    """Return what `positions.json` tells of the output with this name; None without it, or if it is damaged.

    Raises:
        TransportUnavailable, TransportRefused: The file cannot be read.
    """
    with translated(positions):
        try:
            found = _decode(positions.read_bytes())
        except (FileNotFoundError, msgspec.DecodeError, RecursionError):
            return None
    return Written(found.before.get(name, 0), found.lengths[name]) if name in found.lengths else None


def find_lasting_length(positions: Path, name: str) -> int:
    """Return the length in bytes that `positions.json` tells of the output with this name; 0 without it, or if it is damaged.

    Lines behind that length may be cut off again, because their write or its sync failed, and others may take their place. The
    length only grows, but for a power cut that restores an older file: what was within the length before is still there.

    Raises:
        TransportUnavailable, TransportRefused: The file cannot be read.
    """
    written = find_written(positions, name)
    return 0 if written is None else max(0, written.length)
