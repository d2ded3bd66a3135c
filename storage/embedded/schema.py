"""The tables of the embedded storage, their format version, and the creation of a new file."""

import os
import sqlite3
from pathlib import Path
from tempfile import mkstemp

from resequencer.storage_port import StorageRefused
from storage.embedded.change_log import INDEX, TABLE
from storage.embedded.commit_log import logs_of
from storage.embedded.errors import RESTORE
from storage.embedded.write_ahead_log import is_there, log_of
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
        if log.exists():
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
