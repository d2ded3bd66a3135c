"""Moves the beginning of a partition file into an archive while its producer appends and the service reads."""

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from connectors.files.archived_marker import ArchivedMarker, kept_from
from connectors.files.errors import translated
from connectors.files.gzip_file import CHUNK_BYTES, digest_of, find_packed_digest, pack
from connectors.files.operations import FileOperations, make_directory, sync_directory
from connectors.port import TransportRefused

PIECE_BYTES = 256 * 1024 * 1024
"""About the most bytes that one archive file holds, counted before packing."""

_CANNOT_PUNCH = (errno.EOPNOTSUPP, errno.ENOSYS)


class Piece(NamedTuple):
    """An archive file (gzip) and the bytes of the partition file that it holds: from `start` to before `end`."""

    path: Path
    start: int
    end: int


class InputArchive:
    """An archive directory. Only one process may move pieces at a time; the caller holds a lock.

    A piece moves in three steps, each durable before the next. After a crash every line is in the input, in the archive, or in
    both:

    1. The piece is written to the archive, read back, and renamed to its final name.
    2. `partition-N.archived` sets the start of the input behind the piece.
    3. The blocks of the piece are given back to the file system. Offsets do not change: each still counts bytes of the file.
    """

    def __init__(self, directory: Path, files: FileOperations) -> None:
        self._directory = directory
        self._files = files

    def move(self, partition_file: Path, until: int) -> Iterator[Piece]:
        """Move all lines before the offset `until`, which is the start of a line. Each piece is yielded once it has moved.

        Raises:
            TransportRefused: The input or the archive is damaged; the text says what to do.
            TransportUnavailable: No space, or a disk fails. The same call again continues.
        """
        with translated(self._directory):
            make_directory(self._files, self._directory)
        with translated(partition_file):
            descriptor = self._files.open(partition_file, os.O_RDWR)
            try:
                if (size := os.fstat(descriptor).st_size) < until:
                    problem = f"has {size} bytes but was read up to position {until}: it was cut. Restore its earlier content"
                    raise TransportRefused(str(partition_file), problem)
                yield from self._move(_Source(partition_file, descriptor, self._files), until)
            finally:
                os.close(descriptor)

    def _move(self, source: "_Source", until: int) -> Iterator[Piece]:
        beginning = ArchivedMarker(source.path, self._files)
        start = beginning.offset()
        # A crash may have come before the third step of the last piece.
        source.give_back(start)
        while start < until:
            piece = self._find_left_behind(source, start, until) or self._write(source, start, source.end_of_piece(start, until))
            beginning.move_to(piece.end)
            source.give_back(piece.end)
            yield piece
            start = piece.end

    def _find_left_behind(self, source: "_Source", start: int, until: int) -> Piece | None:
        """Return the piece that a crash before the second step left in the archive, or None."""
        name = re.compile(rf"{re.escape(source.path.stem)}\.{start:016d}-([0-9]{{16,18}})\.jsonl\.gz", re.ASCII)
        with translated(self._directory):
            found = [(each, int(match[1])) for each in self._directory.iterdir() if (match := name.fullmatch(each.name))]
        for path, end in found:
            if end <= until:
                self._see_that_it_holds(path, digest_of(source.chunks(start, end)))
                return Piece(path, start, end)
        return None

    def _write(self, source: "_Source", start: int, end: int) -> Piece:
        draft = self._directory / f"{source.path.stem}.tmp"
        path = self._directory / f"{source.path.stem}.{start:016d}-{end:016d}.jsonl.gz"
        with translated(draft):
            descriptor = self._files.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            try:
                digest = pack(self._files, descriptor, source.chunks(start, end))
                self._files.fsync(descriptor)
            finally:
                os.close(descriptor)
            self._see_that_it_holds(draft, digest)
            self._files.replace(draft, path)
            sync_directory(self._files, self._directory)
        return Piece(path, start, end)

    def _see_that_it_holds(self, path: Path, digest: bytes) -> None:
        """Check the archived bytes before their blocks in the input are given back.

        Raises:
            TransportRefused: The archive file holds other bytes than the input.
        """
        with translated(path):
            descriptor = self._files.open(path, os.O_RDONLY)
            try:
                held = find_packed_digest(self._files, descriptor)
            finally:
                os.close(descriptor)
        if held != digest:
            problem = "does not hold the bytes at its place in the input. If the input is right, move this archive file away"
            raise TransportRefused(str(path), problem)


class _Source:
    """The partition file, opened for reading and for giving blocks back. Its producer may be appending to it."""

    def __init__(self, path: Path, descriptor: int, files: FileOperations) -> None:
        self.path = path
        self._descriptor = descriptor
        self._files = files

    def chunks(self, start: int, end: int) -> Iterator[bytes]:
        while start < end:
            chunk = self._files.read(self._descriptor, min(CHUNK_BYTES, end - start), start)
            if not chunk:
                raise OSError(f"the file ended at byte {start}, before {end}")
            yield chunk
            start += len(chunk)

    def end_of_piece(self, start: int, until: int) -> int:
        """Return a line's start at most `PIECE_BYTES` behind `start`; further only if a single line is longer."""
        stop = start + PIECE_BYTES
        if until <= stop:
            return until
        while stop > start:
            begin = max(start, stop - CHUNK_BYTES)
            at = self._files.read(self._descriptor, stop - begin, begin).rfind(b"\n")
            if at >= 0:
                return begin + at + 1
            stop = begin
        return until

    def give_back(self, end: int) -> None:
        """Give back all whole blocks before `end` but for those that prove that the file is the one that was read."""
        length = kept_from(end)
        if length <= 0:
            return
        try:
            self._files.punch(self._descriptor, length)
        except OSError as error:
            if error.errno not in _CANNOT_PUNCH:
                raise
            problem = f"the file system cannot free a part of a file ({error.strerror}), so the file keeps its size on disk"
            raise TransportRefused(str(self.path), f"{problem}. Keep the input on ext4, XFS, Btrfs or tmpfs") from error
