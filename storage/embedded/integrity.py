"""A check that a database is consistent, made before its first use."""

import sqlite3
from pathlib import Path

from resequencer.storage_port import StorageRefused
from storage.embedded.errors import RESTORE

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
