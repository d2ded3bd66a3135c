"""Moves the beginning of a partition file into an archive while its producer appends and the service reads."""

import errno
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from guardian.ports import TransportRefused
from notification_service.connectors.files.operations import (
    CHUNK_BYTES,
    FileOperations,
    find_end_of_lines,
    make_directory,
    read_chunks,
    replace_synced,
    sync_directory,
    translated,
    write_all,
)

FORMAT = 1
BLOCK_BYTES = 4096


def kept_from(end: int) -> int:
    """Return where the bytes begin that stay in a partition file before `end`, however much of it moves to the archive.

    They prove later that it is the same file: up to two blocks of it, and more than one if there are so many.
    """
    return max(0, (end - 1) // BLOCK_BYTES - 1) * BLOCK_BYTES


class _Document(msgspec.Struct):
    """`to` is the start of the first line that is still in the partition file."""

    format: int
    to: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class ArchivedMarker:
    """The marker of one partition file. It lies beside the file, so that both are copied and moved together.

    An update replaces the marker file as a whole.
    """

    def __init__(self, partition_file: Path, files: FileOperations) -> None:
        self.path = partition_file.with_suffix(".archived")
        self._files = files

    def offset(self) -> int:
        """Return the offset at which the partition file begins; 0 if nothing was archived.

        Raises:
            TransportRefused: The marker is damaged, or a newer version wrote it.
        """
        with translated(self.path):
            try:
                data = self.path.read_bytes()
            except FileNotFoundError:
                return 0
        try:
            document = msgspec.json.decode(data, type=_Document)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            remedy = 'Write {"format":1,"to":N} to it; N is the second number in the name of the last file in the archive'
            raise TransportRefused(str(self.path), f"is damaged ({error}). {remedy}") from error
        if document.format != FORMAT:
            raise TransportRefused(
                str(self.path), f"has format {document.format}, this version reads {FORMAT}. Start the version that wrote it"
            )
        return document.to

    def move_to(self, offset: int) -> None:
        """Set the marker to `offset`, durably.

        Raises:
            TransportUnavailable: The marker holds either its earlier offset or this one.
        """
        with translated(self.path):
            replace_synced(self._files, self.path, msgspec.json.encode(_Document(FORMAT, offset)) + b"\n")
            sync_directory(self._files, self.path.parent)


_GZIP = 16 + zlib.MAX_WBITS


def pack(files: FileOperations, descriptor: int, chunks: Iterable[bytes]) -> bytes:
    """Write the chunks as gzip, and return the SHA-256 of the unpacked bytes.

    Raises OSError; the file may then hold any beginning of the gzip data.
    """
    digest, packer = sha256(), zlib.compressobj(wbits=_GZIP)
    for chunk in chunks:
        digest.update(chunk)
        write_all(files, descriptor, packer.compress(chunk))
    write_all(files, descriptor, packer.flush())
    return digest.digest()


def digest_of(chunks: Iterable[bytes]) -> bytes:
    """Return the SHA-256 of the chunks, without packing them."""
    digest = sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.digest()


def find_packed_digest(files: FileOperations, descriptor: int) -> bytes | None:
    """Return the SHA-256 of the unpacked content of a file that `pack` wrote; None if the gzip file is invalid or incomplete."""
    digest, offset, unpacker = sha256(), 0, zlib.decompressobj(_GZIP)
    try:
        while chunk := files.read(descriptor, CHUNK_BYTES, offset):
            offset += len(chunk)
            while chunk:
                digest.update(unpacker.decompress(chunk, CHUNK_BYTES))
                chunk = unpacker.unconsumed_tail
        digest.update(unpacker.flush())
    except zlib.error:
        return None
    return digest.digest() if unpacker.eof and not unpacker.unused_data else None


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
        self._end_last_move(source, start)
        while start < until:
            piece = self._find_left_behind(source, start, until) or self._write(source, start, source.end_of_piece(start, until))
            beginning.move_to(piece.end)
            source.give_back(piece)
            yield piece
            start = piece.end

    def _end_last_move(self, source: "_Source", end: int) -> None:
        """Give back the blocks of the piece that ends at `end`: a crash may have come before its third step.

        Without its archive file they stay, since they may be another file's that took this one's place.
        """
        for piece in self._pieces(source):
            if piece.end == end and source.holds(piece):
                self._see_that_it_holds(piece.path, digest_of(source.chunks(piece.start, end)))
                source.give_back(piece)

    def _find_left_behind(self, source: "_Source", start: int, until: int) -> Piece | None:
        """Return the piece that a crash before the second step left in the archive, or None."""
        for piece in self._pieces(source):
            if piece.start == start and piece.end <= until:
                self._see_that_it_holds(piece.path, digest_of(source.chunks(start, piece.end)))
                return piece
        return None

    def _pieces(self, source: "_Source") -> list[Piece]:
        name = re.compile(rf"{re.escape(source.path.stem)}\.([0-9]{{16,18}})-([0-9]{{16,18}})\.jsonl\.gz", re.ASCII)
        with translated(self._directory):
            found = [(each, name.fullmatch(each.name)) for each in self._directory.iterdir()]
        return [Piece(path, int(match[1]), int(match[2])) for path, match in found if match]

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
        return read_chunks(self._files, self._descriptor, start, end)

    def end_of_piece(self, start: int, until: int) -> int:
        """Return a line's start at most `PIECE_BYTES` behind `start`; further only if a single line is longer."""
        stop = start + PIECE_BYTES
        if until <= stop:
            return until
        end = find_end_of_lines(self._files, self._descriptor, stop, start)
        return end if end > start else until

    def holds(self, piece: Piece) -> bool:
        """Return whether the blocks of a piece are still there: no line begins with a zero byte."""
        return self._files.read(self._descriptor, 1, piece.start) != b"\0"

    def give_back(self, piece: Piece) -> None:
        """Give back the whole blocks of a piece but for those that prove that the file is the one that was read."""
        start, end = kept_from(piece.start), kept_from(piece.end)
        if start >= end:
            return
        try:
            self._files.punch(self._descriptor, start, end - start)
        except OSError as error:
            if error.errno not in _CANNOT_PUNCH:
                raise
            problem = f"the file system cannot free a part of a file ({error.strerror}), so the file keeps its size on disk"
            raise TransportRefused(str(self.path), f"{problem}. Keep the input on ext4, XFS, Btrfs or tmpfs") from error
