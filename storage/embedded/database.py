"""The connection to the embedded storage's file: how it is opened, and transactions on it."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from storage.embedded.errors import RESTORE, RIGHTS, is_read_only, see_that_it_is_read, translated
from storage.embedded.integrity import see_that_it_is_sound
from storage.embedded.schema import check_format, create, upgrade
from storage.embedded.write_ahead_log import is_outgrown, see_that_it_is_whole, write_again
from storage.port import StorageRefused, StorageUnavailable

# A checkpoint copies what changed into the database and syncs it. Rarely enough to spare most commits one, often enough
# that the log stays below some 16 MB; after an outsize commit it is cut back to 64 MB.
_SETTINGS = (
    "PRAGMA synchronous = FULL",
    "PRAGMA wal_autocheckpoint = 4000",
    "PRAGMA journal_size_limit = 67108864",
    "PRAGMA cache_size = -32768",
    # Zeroes what was deleted only where that costs no further page.
    "PRAGMA secure_delete = FAST",
    "PRAGMA cell_size_check = ON",
    "PRAGMA trusted_schema = OFF",
)


class Database:
    """One connection to one file, made on first use in the thread that uses it; missing files are created.

    Other processes may use the same file: who wants to write waits `busy_timeout_ms` for his turn.
    """

    def __init__(self, file: Path, busy_timeout_ms: int) -> None:
        self.file = file
        self._busy_timeout_ms = busy_timeout_ms
        self._connection: sqlite3.Connection | None = None
        self._is_trusted = False
        self._was_read_only = False

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A transaction that sees one state of the file throughout."""
        with self._transaction("BEGIN") as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that is alone in writing, from its beginning, and durable once it is left; undone if it raises."""
        if not self._is_trusted:
            self._begin_to_trust()
        with self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection
        self._was_read_only = False

    def release_pages(self, at_most: int) -> None:
        """Give free pages back to the file system once they are a quarter of the file; fewer will soon be used again."""
        with self._guarded():
            connection = self._connect()
            (free,) = connection.execute("PRAGMA freelist_count").fetchone()
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            if free * 4 > pages:
                # The pragma gives back one page per step, and only a script is stepped to its end.
                connection.executescript(f"PRAGMA incremental_vacuum({at_most:d})")

    def look_after_log(self) -> None:
        """Checkpoint a log that has outgrown its bound: the automatic checkpoints do not tell that they fail.

        Raises:
            StorageUnavailable: The database cannot be written, while the log still can.
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
        """What was found is looked at, and made durable, before this connection adds anything to it."""
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
        # SQLite itself undoes some of what failed. What cannot be undone now is undone by closing the file.
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
        # SQLite makes do with reading where opening for writing failed, were it only for a while; or for what the header says.
        self.close()
        if self._was_read_only:
            raise StorageRefused(str(self.file), f"it can be opened for reading only, so its header is damaged; {RESTORE}")
        self._was_read_only = True

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            self._see_that_it_is_there()
            connection = sqlite3.connect(self.file, timeout=self._busy_timeout_ms / 1_000, isolation_level=None)
            try:
                check_format(connection, self.file)
                self._prepare(connection)
                upgrade(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _see_that_it_is_there(self) -> None:
        if not self.file.exists():
            create(self.file)
        if not self.file.is_file():
            raise StorageRefused(str(self.file), "this is no file; name another one")
        if not os.access(self.file, os.R_OK | os.W_OK):
            raise StorageRefused(str(self.file), f"it may not be read and written; {RIGHTS}")
        # SQLite would take an empty file for a new database.
        if self.file.stat().st_size == 0:
            raise StorageRefused(str(self.file), f"it is empty, so it was cut; {RESTORE}")

    def _prepare(self, connection: sqlite3.Connection) -> None:
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise StorageRefused(str(self.file), "its file system does not allow a write-ahead log; name a file on a local disk")
        for setting in _SETTINGS:
            connection.execute(setting)
