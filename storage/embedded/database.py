"""The connection to the embedded storage's file, and its transactions."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from resequencer.storage_port import StorageRefused, StorageUnavailable
from storage.embedded.errors import RESTORE, RIGHTS, is_read_only, see_that_it_is_read, translated
from storage.embedded.integrity import see_that_it_is_sound
from storage.embedded.schema import check_format, create
from storage.embedded.write_ahead_log import is_outgrown, see_that_it_is_whole, write_again

# A checkpoint copies changes from the log into the database and syncs it. It runs rarely enough that most commits need none, and
# often enough that the log stays below about 16 MB. After a very large commit the log is cut back to 64 MB.
_SETTINGS = (
    "PRAGMA synchronous = FULL",
    "PRAGMA wal_autocheckpoint = 4000",
    "PRAGMA journal_size_limit = 67108864",
    "PRAGMA cache_size = -32768",
    # Overwrites deleted data with zeroes only if that writes no further page.
    "PRAGMA secure_delete = FAST",
    "PRAGMA cell_size_check = ON",
    "PRAGMA trusted_schema = OFF",
)


class Database:
    """One connection to one file, opened on first use in the thread that uses it. A missing file is created.

    Other processes may use the same file. A writer waits up to `busy_timeout_ms` for the others.
    """

    def __init__(self, file: Path, busy_timeout_ms: int) -> None:
        self.file = file
        self.busy_timeout_ms = busy_timeout_ms
        self._connection: sqlite3.Connection | None = None
        self._is_trusted = False
        self._was_read_only = False

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Run a read transaction, which sees one state of the file throughout."""
        with self._transaction("BEGIN") as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Run a write transaction. It is the only writer from its beginning, durable at its end, and rolled back if it raises."""
        if not self._is_trusted:
            self._begin_to_trust()
        with self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection
        self._was_read_only = False

    def release_pages(self, at_most: int) -> None:
        """Return free pages to the file system once they are a quarter of the file. Fewer pages are soon used again."""
        with self._guarded():
            connection = self._connect()
            (free,) = connection.execute("PRAGMA freelist_count").fetchone()
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            if free * 4 > pages:
                # The pragma frees one page per step, and only `executescript` runs all steps.
                connection.executescript(f"PRAGMA incremental_vacuum({at_most:d})")

    def look_after_log(self) -> None:
        """Checkpoint a log that exceeds its bound, because automatic checkpoints do not report that they fail.

        Raises:
            StorageUnavailable: The database cannot be written, although the log can.
        """
        with self._guarded():
            connection = self._connect()
            if is_outgrown(self.file):
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    def close(self) -> None:
        if self._connection is not None:
            with translated(self.file):
                self._connection.close()
            self._connection = None
            self._is_trusted = False

    def _begin_to_trust(self) -> None:
        """Check the existing data, and make it durable, before this connection writes anything."""
        with self._transaction("BEGIN") as connection:
            see_that_it_is_sound(self.file, connection)
        with self._transaction("BEGIN IMMEDIATE") as connection:
            see_that_it_is_whole(self.file, connection)
            write_again(self.file)
        self._is_trusted = True

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        with self._guarded():
            connection = self._connect()
            connection.execute(begin)
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                self._undo(connection)
                raise

    def _undo(self, connection: sqlite3.Connection) -> None:
        # SQLite rolls some failed transactions back itself. If a rollback fails now, closing the file rolls back.
        with suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        if connection.in_transaction:
            self.close()

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            with translated(self.file):
                yield
        except StorageUnavailable as error:
            if is_read_only(error.__cause__):
                self._close_read_only()
            raise
        except StorageRefused:
            self.close()
            see_that_it_is_read(self.file)
            raise

    def _close_read_only(self) -> None:
        # SQLite opens a file read-only if opening it for writing failed, even for a moment, or if its header demands that.
        self.close()
        if self._was_read_only:
            raise StorageRefused(str(self.file), f"it can be opened for reading only, so its header is damaged; {RESTORE}")
        self._was_read_only = True

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            self._see_that_it_is_there()
            connection = sqlite3.connect(self.file, timeout=self.busy_timeout_ms / 1_000, isolation_level=None)
            try:
                check_format(connection, self.file)
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _see_that_it_is_there(self) -> None:
        if not self.file.exists():
            create(self.file)
        if not self.file.is_file():
            raise StorageRefused(str(self.file), "this is not a file; set another path in storage.embedded.file")
        if not os.access(self.file, os.R_OK | os.W_OK):
            raise StorageRefused(str(self.file), f"the service may not read and write it; {RIGHTS}")
        # SQLite would take an empty file for a new database.
        if self.file.stat().st_size == 0:
            raise StorageRefused(str(self.file), f"it is empty, so it was truncated; {RESTORE}")

    def _prepare(self, connection: sqlite3.Connection) -> None:
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise StorageRefused(str(self.file), "its file system does not support a write-ahead log; use a file on a local disk")
        for setting in _SETTINGS:
            connection.execute(setting)
