"""The connection to the embedded storage's file, and its transactions."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkstemp

from resequencer.storage_port import StorageRefused, StorageUnavailable
from storage.embedded.change_log import INDEX, TABLE
from storage.embedded.commit_log import logs_of
from storage.embedded.errors import RESTORE, RIGHTS, is_read_only, see_that_it_is_read, translated
from storage.embedded.write_ahead_log import is_outgrown, is_there, log_of, see_that_it_is_whole, write_again
from storage.private_file import sync_directory

APPLICATION_ID = 0x52534551
FORMAT_VERSION = 6
"""Files of format 5 have no commit logs beside them, and are of format 6 from the first takeover on: an older service would not
see the logs. One that has the file open fails then, because a column has another name.
"""

_READ_VERSIONS = (5, FORMAT_VERSION)
PAGE_SIZE = 4_096

# Units have a rowid beside their name. Units that are active at the same time were usually inserted at the same time, so a commit
# touches neighbouring pages however many idle units there are. The other tables refer to a unit by this small number.
# `changed_at` is a time on the caught-up clock of the unit's partition.
_TABLES = """
CREATE TABLE partitions (
    id INTEGER PRIMARY KEY,
    topic TEXT NOT NULL,
    number INTEGER NOT NULL,
    token TEXT NOT NULL,
    commit_number INTEGER NOT NULL,
    last_attempt TEXT,
    next_offset INTEGER,
    highest_number INTEGER NOT NULL,
    heal_offset INTEGER NOT NULL,
    history TEXT NOT NULL,
    source TEXT NOT NULL DEFAULT '',
    caught_up_ms INTEGER NOT NULL DEFAULT 0,
    orders TEXT NOT NULL DEFAULT '',
    source_state TEXT NOT NULL DEFAULT '',
    UNIQUE (topic, number)
);
CREATE TABLE units (
    id INTEGER PRIMARY KEY,
    partition INTEGER NOT NULL,
    unit BLOB NOT NULL,
    changed_at INTEGER NOT NULL,
    wakes_at INTEGER,
    kind TEXT,
    since INTEGER,
    waits_for TEXT,
    strategy TEXT,
    stashed INTEGER,
    stashed_bytes INTEGER,
    state BLOB NOT NULL,
    UNIQUE (partition, unit)
);
CREATE INDEX waiting ON units (partition, wakes_at) WHERE wakes_at IS NOT NULL;
CREATE INDEX idle ON units (partition, changed_at) WHERE wakes_at IS NULL;
CREATE TABLE payment_data (unit_id INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE stash (unit_id INTEGER NOT NULL, arrived INTEGER NOT NULL, body BLOB NOT NULL);
CREATE UNIQUE INDEX stashed ON stash (unit_id, arrived);
CREATE TABLE pending (partition INTEGER NOT NULL, number INTEGER NOT NULL, body BLOB NOT NULL);
CREATE UNIQUE INDEX numbered ON pending (partition, number);
"""


def create(file: Path) -> None:
    """Create an empty database with this name, readable by its owner only. A file that appeared meanwhile is kept.

    The database is completed under another name and then linked, so that an empty or incomplete file is always damage.

    Raises:
        StorageRefused: The directory is missing, or it has a write-ahead log without its database.
    """
    if not file.parent.is_dir():
        raise StorageRefused(str(file), "its directory does not exist; create it, or mount the file system that holds it")
    for log in (log_of(file), *logs_of(file)):
        # A process that created the database meanwhile may have its log by now.
        if log.exists() and not file.exists():
            raise StorageRefused(str(file), f"the database is missing but its log {log.name} exists; {RESTORE}")
    handle, draft = mkstemp(prefix=f"{file.name}.", suffix=".new", dir=file.parent)
    os.close(handle)
    try:
        _fill(draft)
        os.link(draft, file)
    except FileExistsError:
        pass
    finally:
        for each in (draft, f"{draft}-journal"):
            Path(each).unlink(missing_ok=True)
    sync_directory(file.parent)


def check_format(connection: sqlite3.Connection, file: Path) -> None:
    """Check that the file is the service's and of a known format. Changes nothing.

    Raises:
        StorageRefused: The file is another program's, or of an unknown format.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION_ID:
        raise StorageRefused(str(file), "this is another program's database; set another path in storage.embedded.file")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > FORMAT_VERSION:
        problem = f"its format is {version}, this version of the service knows {FORMAT_VERSION}"
        raise StorageRefused(str(file), f"{problem}; start the newer version that wrote it, or set another path")
    if version not in _READ_VERSIONS:
        raise StorageRefused(str(file), f"its format is {version}, which this version of the service does not read; {RESTORE}")
    _check_size(file)


def upgrade(connection: sqlite3.Connection) -> None:
    """Make a file of an earlier format one of this format, in the caller's transaction."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version != FORMAT_VERSION:
        connection.execute("ALTER TABLE partitions RENAME COLUMN attempt TO last_attempt")
        connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")


def _check_size(file: Path) -> None:
    # SQLite detects a missing page, but reads zeroes if only a part of the last page is missing. If there is a log, the missing
    # part may be in it: a checkpoint was interrupted, and the log completes it.
    if file.stat().st_size % PAGE_SIZE and not is_there(file):
        raise StorageRefused(str(file), f"its last page is incomplete, so it was truncated; {RESTORE}")


def _fill(draft: str) -> None:
    connection = sqlite3.connect(draft, isolation_level=None)
    try:
        # These settings are possible only before the first table is created.
        connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.executescript(
            f"BEGIN; {_TABLES} {TABLE}; {INDEX};"
            f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT_VERSION}; COMMIT;"
        )
        # The mode is permanent. To set it later would fail if two processes open a new file at once.
        connection.execute("PRAGMA journal_mode = WAL")
    finally:
        connection.close()


LARGEST_BYTES = 1024 * 1024 * 1024
"""Larger files are not checked, because that would take too long at each start. Damage then shows when it is read."""


def see_that_it_is_sound(file: Path, connection: sqlite3.Connection) -> None:
    """Check that pages, tables and indexes fit together. It takes about two seconds per gigabyte in the system's cache.

    A flipped bit in a value outside the indexes is not detected, because SQLite has no page checksums.

    Raises:
        StorageRefused: The database is damaged.
    """
    if file.stat().st_size > LARGEST_BYTES:
        return
    (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if found != "ok":
        problem = " ".join(found.removeprefix("*** in database main ***").split())
        raise StorageRefused(str(file), f"it is damaged: {problem}; {RESTORE}")


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
