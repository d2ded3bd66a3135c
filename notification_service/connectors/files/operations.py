"""The operating system's file calls that the file transport uses, behind one Protocol so that tests can inject faults."""

import ctypes
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Protocol

from guardian.ports import TransportRefused, TransportUnavailable

CHUNK_BYTES = 1024 * 1024
_SEARCH_BYTES = 64 * 1024

_PUNCH_HOLE = 0x01 | 0x02
"""FALLOC_FL_KEEP_SIZE and FALLOC_FL_PUNCH_HOLE of linux/falloc.h."""


class FileOperations(Protocol):
    """The system calls of the same names. Each raises OSError. A write may write only a part of the data."""

    def open(self, path: Path, flags: int) -> int: ...

    def read(self, descriptor: int, size: int, offset: int) -> bytes: ...

    def write(self, descriptor: int, data: bytes | memoryview) -> int: ...

    def fsync(self, descriptor: int) -> None: ...

    def truncate(self, descriptor: int, length: int) -> None: ...

    def replace(self, source: Path, target: Path) -> None: ...

    def unlink(self, path: Path) -> None: ...

    def punch(self, descriptor: int, start: int, length: int) -> None:
        """Free the blocks of `length` bytes from `start` on: they read as zeros, and later bytes keep their offsets."""
        ...


class SystemFiles:
    """The operating system's own calls. New files are readable by owner and group only, because they hold payments."""

    def open(self, path: Path, flags: int) -> int:
        return os.open(path, flags | os.O_CLOEXEC, 0o640)

    def read(self, descriptor: int, size: int, offset: int) -> bytes:
        return os.pread(descriptor, size, offset)

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        return os.write(descriptor, data)

    def fsync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def truncate(self, descriptor: int, length: int) -> None:
        os.ftruncate(descriptor, length)

    def replace(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def punch(self, descriptor: int, start: int, length: int) -> None:
        if _fallocate()(descriptor, _PUNCH_HOLE, start, length):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def write_all(files: FileOperations, descriptor: int, data: bytes) -> None:
    """Write all data. After an error the file may hold any beginning of the data."""
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[files.write(descriptor, remaining) :]


def read_chunks(files: FileOperations, descriptor: int, start: int, end: int) -> Iterator[bytes]:
    """Yield the bytes from `start` to before `end`.

    Raises:
        OSError: The file has ended before, as one that was cut meanwhile.
    """
    while start < end:
        chunk = files.read(descriptor, min(CHUNK_BYTES, end - start), start)
        if not chunk:
            raise OSError(f"the file ended at byte {start}, before {end}")
        yield chunk
        start += len(chunk)


def find_end_of_lines(files: FileOperations, descriptor: int, end: int, start: int = 0) -> int:
    """Return the offset behind the last newline before `end`, and `start` if there is none behind `start`.

    The search goes backwards, so that it costs one read where lines are short.
    """
    stop = end
    while stop > start:
        begin = max(start, stop - _SEARCH_BYTES)
        at = files.read(descriptor, stop - begin, begin).rfind(b"\n")
        if at >= 0:
            return begin + at + 1
        stop = begin
    return start


def sync_directory(files: FileOperations, directory: Path) -> None:
    """Make the names in a directory durable: a synced new file may still lose its name in a power cut."""
    descriptor = files.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        files.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_synced(files: FileOperations, path: Path, content: bytes) -> None:
    """Replace a file, whose content is durable then. Its name is durable only after `sync_directory`.

    Before, a power cut may restore an older one.

    Raises:
        TransportRefused, TransportUnavailable: As `translated`; the file still has the content before.
    """
    draft = path.with_name(f"{path.name}.tmp")
    with translated(draft):
        descriptor = files.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            write_all(files, descriptor, content)
            files.fsync(descriptor)
        finally:
            os.close(descriptor)
        files.replace(draft, path)


def make_directory(files: FileOperations, directory: Path) -> None:
    """Make a directory and those above it, with names that a power cut does not take."""
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    for each in reversed(missing):
        sync_directory(files, each.parent)


@cache
def _fallocate() -> Callable[[int, int, int, int], int]:
    """Return the C library's `fallocate`. Python offers only `posix_fallocate`, which cannot punch holes."""
    library = ctypes.CDLL(None, use_errno=True)
    call = getattr(library, "fallocate64", None) or library.fallocate
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    typed: Callable[[int, int, int, int], int] = call
    return typed


_NEEDS_A_PERSON = (PermissionError, IsADirectoryError, NotADirectoryError, FileExistsError)


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise the port's errors instead of an OSError about `path`.

    Missing rights and wrong kinds of file need an operator (TransportRefused). A full, failing or missing disk may recover by
    itself (TransportUnavailable).
    """
    try:
        yield
    except _NEEDS_A_PERSON as error:
        raise TransportRefused(str(path), f"{_text(error)}. Make it readable and writable for the service") from error
    except OSError as error:
        raise TransportUnavailable(f"{path}: {_text(error)}") from error


def _text(error: OSError) -> str:
    return f"{errno.errorcode.get(error.errno or 0, 'OSError')}: {error.strerror or error}"
