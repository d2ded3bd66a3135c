"""The translation of errors of SQLite and of its file."""

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from resequencer.storage_port import StorageRefused, StorageUnavailable

RESTORE = "restore it from a backup, or move it and its -wal and -log files away to start empty: notifications may then repeat"
RIGHTS = "grant the service the right to read and write it and its directory, or use another file"

_CHUNK_BYTES = 1024 * 1024
_GOES_AWAY = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_NOMEM,
    # Rights are checked before SQLite opens the file. The remaining causes are missing inodes and file handles.
    sqlite3.SQLITE_CANTOPEN,
}
# An error in a statement that worked before comes from a damaged schema.
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_ERROR}
_FORBIDDEN = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}
_FORBIDDEN_BY_SYSTEM = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EOPNOTSUPP}


@contextmanager
def translated(file: Path) -> Iterator[None]:
    """Run statements on `file`, and translate their errors. An error that neither disk nor file caused passes unchanged.

    Raises:
        StorageUnavailable: The file is locked, the disk is full, or the file cannot be read or written at the moment.
        StorageRefused: The file is damaged, is not a database, or may not be written.
    """
    try:
        yield
    except sqlite3.Error as error:
        kind = _kind_of(error)
        if kind in _DAMAGED or (kind == 0 and isinstance(error, sqlite3.OperationalError)):
            raise StorageRefused(str(file), f"{error}; {RESTORE}") from error
        if kind in _FORBIDDEN and not os.access(file, os.R_OK | os.W_OK):
            raise StorageRefused(str(file), f"{error}; {RIGHTS}") from error
        if kind in _GOES_AWAY | _FORBIDDEN:
            raise StorageUnavailable(f"{file}: {error} ({error.sqlite_errorname})") from error
        raise
    except (ValueError, OverflowError, msgspec.DecodeError) as error:
        raise StorageRefused(str(file), f"it contains data that the service never writes ({error}); {RESTORE}") from error
    except OSError as error:
        if error.errno in _FORBIDDEN_BY_SYSTEM:
            raise StorageRefused(str(file), f"{error.strerror}; {RIGHTS}") from error
        raise StorageUnavailable(f"{file}: {errno.errorcode.get(error.errno or 0, 'error')}: {error.strerror}") from error


def is_read_only(error: BaseException | None) -> bool:
    """Whether the error is SQLite's for a read-only connection."""
    return _kind_of(error) == sqlite3.SQLITE_READONLY


def _kind_of(error: BaseException | None) -> int:
    """Return SQLite's primary code, the lowest byte of an extended code; 0 for errors of the Python module (invalid UTF-8)."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def see_that_it_is_read(file: Path) -> None:
    """Check that the disk can read the whole file, because SQLite reports an unreadable page as a damaged one.

    No connection may be open: closing any descriptor of a file releases all locks of the process on it.

    Raises:
        StorageUnavailable: The disk cannot read the file at the moment.
    """
    try:
        with file.open("rb") as opened:
            while opened.read(_CHUNK_BYTES):
                pass
    except OSError as error:
        if error.errno == errno.EIO:
            raise StorageUnavailable(f"{file}: EIO: {error.strerror}") from error
