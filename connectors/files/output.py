"""One file that lines are appended to: how far it is good, and what a crash or a failure left behind that."""

import logging
import os
from contextlib import suppress
from pathlib import Path

from connectors.files.errors import translated
from connectors.files.line_reader import CHUNK_BYTES, LineReader
from connectors.files.numbers import FoundNumbers, find_number
from connectors.files.operations import FileOperations, sync_directory, write_all
from connectors.port import TransportRefused
from domain.record import Partition

_LONGEST_LINE_BYTES = 256 * 1024 * 1024
_REMEDY = "Put the missing part back, or move the file away: a new one is begun"
_LOG = logging.getLogger(__name__)

Numbers = dict[Partition, frozenset[int]]


class OutputFile:
    """Appends whole lines durably, or leaves the file as it was.

    A file that was moved away (by us or by anybody else) or emptied is begun anew. Complete lines behind the known length have
    left and are told by their numbers; a line without its end never was acknowledged and is cut off. `length` is how far it
    is good; `is_begun_anew` stays true until the caller has noted the new length and says so.
    """

    def __init__(self, path: Path, files: FileOperations) -> None:
        self.path = path
        self.length = 0
        self.is_begun_anew = False
        self._files = files
        self._descriptor: int | None = None
        self._is_torn = False

    def open(self, length: int) -> Numbers:
        """Mend it; the numbers of the lines beyond `length`, up to which the caller knows the lines.

        Raises:
            TransportRefused: It is shorter than that, but not empty, or no line ends there.
        """
        with translated(self.path):
            self.close()
            self._open()
            self.length = length
            return self._recover()

    def revisit(self) -> Numbers:
        """Before an append: mend what the last one left, begin anew if the file was moved away. Numbers as of `open`."""
        with translated(self.path):
            if self._is_torn:
                self._cut_back()
                self._is_torn = False
            if self._was_moved():
                _LOG.warning("%s was moved away at %d bytes: a new one is begun", self.path, self.length)
                self.is_begun_anew = True
                return self.open(0)
            return self._recover()

    def append(self, lines: bytes) -> None:
        """Durably, all or nothing. Call `revisit` first.

        Raises:
            TransportUnavailable: No room, or the disk fails; nothing of it counts.
        """
        with translated(self.path):
            self._is_torn = True
            try:
                write_all(self._files, self._opened, lines)
                self._files.fsync(self._opened)
            except OSError:
                # What a failed fsync left in memory may never reach the disk: it is written again, not trusted.
                with suppress(OSError):
                    self._cut_back()
                raise
            self._is_torn = False
            self.length += len(lines)

    def move_to(self, target: Path) -> None:
        """Begin anew; what is there gets this name. Call `revisit` first.

        Raises:
            TransportUnavailable: It has its old name or the new one; `revisit` sees which.
        """
        with translated(self.path):
            self._files.replace(self.path, target)
            self.close()
            self._open()
            self.length = 0
            self.is_begun_anew = True

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

    def _cut_back(self) -> None:
        # Never to a greater length: what somebody emptied meanwhile would be filled with zeros.
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
            _LOG.warning("%s is empty where %d bytes were written: it is begun anew", self.path, self.length)
            self.is_begun_anew = True
            self.length = 0
        if size < self.length:
            raise self._refused(f"has {size} bytes where {self.length} were written: it was cut")
        if size == self.length:
            return {}
        if self.length and self._read(1, self.length - 1) != b"\n":
            raise self._refused(f"no line ends at byte {self.length}, up to which it was written: it was edited")
        return self._adopt(size)

    def _adopt(self, size: int) -> Numbers:
        """Take over the complete lines behind the known length, in chunks; cut off the rest."""
        numbers, unnumbered, end = self._look_through(size)
        if unnumbered:
            _LOG.warning(
                "%s: %d lines from byte %d on have no number; they are left as they are", self.path, unnumbered, self.length
            )
        if end < size:
            _LOG.warning("%s ends in %d bytes of a torn line: they are cut off", self.path, size - end)
            self._files.truncate(self._opened, end)
        self._write_again(self.length, end)
        self.length = end
        return numbers.by_partition()

    def _look_through(self, size: int) -> tuple[FoundNumbers, int, int]:
        """The numbers behind the known length, how many lines there have none, and where the last whole line ends.

        A line with a zero byte was torn by a power cut, which need not leave the beginning of what was written last.
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
        """Write the very same bytes over those that stand there, and sync them: from now on they count.

        After a sync that failed the system shows bytes that the disk does not have, and calls them written. No other sync
        would bring them there.
        """
        descriptor = self._files.open(self.path, os.O_WRONLY)
        try:
            os.lseek(descriptor, start, os.SEEK_SET)
            while start < end:
                chunk = self._read(min(CHUNK_BYTES, end - start), start)
                write_all(self._files, descriptor, chunk)
                start += len(chunk)
            self._files.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _read(self, size: int, offset: int) -> bytes:
        return self._files.read(self._opened, size, offset)

    def _refused(self, problem: str) -> TransportRefused:
        return TransportRefused(str(self.path), f"{problem}. {_REMEDY}")
