"""The tables of the embedded storage, their format version, and how a new file comes to be."""

import os
import sqlite3
from pathlib import Path
from tempfile import mkstemp

from storage.embedded.errors import RESTORE
from storage.embedded.write_ahead_log import is_there, log_of
from storage.port import StorageRefused

APPLICATION_ID = 0x52534551
FORMAT_VERSION = 3
PAGE_SIZE = 4_096

# Units have a rowid beside their name: units that are alive together were made together, so that a commit touches
# neighbouring pages however many idle ones there are, and the other tables refer to them by a small number.
# `changed_at` is a time on the caught-up clock of the unit's partition.
_TABLES = """
CREATE TABLE partitions (
    id INTEGER PRIMARY KEY,
    topic TEXT NOT NULL,
    number INTEGER NOT NULL,
    token TEXT NOT NULL,
    commit_number INTEGER NOT NULL,
    attempt TEXT,
    next_offset INTEGER,
    highest_number INTEGER NOT NULL,
    heal_offset INTEGER NOT NULL,
    history TEXT NOT NULL,
    source TEXT NOT NULL DEFAULT '',
    caught_up_ms INTEGER NOT NULL DEFAULT 0,
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


_UPGRADES = (
    ("ALTER TABLE partitions ADD COLUMN source TEXT NOT NULL DEFAULT ''",),
    # Until format 2, `changed_at` was an instant of the wall clock. The caught-up clocks go on from the last of them.
    (
        "ALTER TABLE partitions ADD COLUMN caught_up_ms INTEGER NOT NULL DEFAULT 0",
        "UPDATE partitions SET caught_up_ms = coalesce((SELECT max(changed_at) FROM units WHERE wakes_at IS NULL), 0)",
        "DROP INDEX idle",
        "CREATE INDEX idle ON units (partition, changed_at) WHERE wakes_at IS NULL",
    ),
)
"""By the format that each begins from, from 1."""


def create(file: Path) -> None:
    """Make an empty database under this name, for its owner's eyes only; one that appeared meanwhile stays.

    It is made whole beside its place and then linked into it, so that an empty or half-made file is always damage.

    Raises:
        StorageRefused: Its directory is missing, or a write-ahead log without its database lies there.
    """
    if not file.parent.is_dir():
        raise StorageRefused(str(file), "its directory does not exist; create it, or mount the file system that holds it")
    if (log := log_of(file)).exists():
        raise StorageRefused(str(file), f"the database is missing but {log.name} is there; {RESTORE}")
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
    _sync_directory(file.parent)


def check_format(connection: sqlite3.Connection, file: Path) -> None:
    """See that the file is ours and of a format that we know. Changes nothing.

    Raises:
        StorageRefused: It is another program's, or of another format.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION_ID:
        raise StorageRefused(str(file), "this is another program's database; name another file")
    version = _version(connection)
    if version > FORMAT_VERSION:
        problem = f"its format is {version}, this version of the service knows {FORMAT_VERSION}"
        raise StorageRefused(str(file), f"{problem}; start the newer version that wrote it, or name another file")
    if version not in range(1, FORMAT_VERSION + 1):
        raise StorageRefused(str(file), f"its format is {version}, which never was one; {RESTORE}")
    _check_size(file)


def upgrade(connection: sqlite3.Connection) -> None:
    """Bring an older format up to date, in one transaction; another process may do it at the same time."""
    if _version(connection) == FORMAT_VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    for upgrades in _UPGRADES[_version(connection) - 1 :]:
        for each in upgrades:
            connection.execute(each)
    connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
    connection.execute("COMMIT")


def _version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def _check_size(file: Path) -> None:
    # SQLite notices a missing page but reads zeroes where a part of the last one is missing. While there is a log, what
    # is missing may be there: a checkpoint was cut short, and is made good from the log.
    if file.stat().st_size % PAGE_SIZE and not is_there(file):
        raise StorageRefused(str(file), f"its last page is incomplete, so it was cut; {RESTORE}")


def _fill(draft: str) -> None:
    connection = sqlite3.connect(draft, isolation_level=None)
    try:
        # These can only be chosen while there is no table yet.
        connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.executescript(
            f"BEGIN; {_TABLES} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT_VERSION}; COMMIT;"
        )
        # It stays in this mode. Changing it later would fail where two processes open a new file at once.
        connection.execute("PRAGMA journal_mode = WAL")
    finally:
        connection.close()


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
