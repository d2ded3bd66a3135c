"""Whether a database holds together, asked before anything is built upon it."""

import sqlite3
from pathlib import Path

from storage.embedded.errors import RESTORE
from storage.port import StorageRefused

LARGEST_BYTES = 1024 * 1024 * 1024
"""Beyond that the question would take too long to be asked at each start; damage then shows where it is met."""


def see_that_it_is_sound(file: Path, connection: sqlite3.Connection) -> None:
    """See that pages, tables and indexes fit together. Some two seconds per gigabyte that is in the system's memory.

    What a flipped bit makes of a value that is in no index is not seen: SQLite keeps no checksums of pages.

    Raises:
        StorageRefused: They do not.
    """
    if file.stat().st_size > LARGEST_BYTES:
        return
    (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if found != "ok":
        problem = " ".join(found.removeprefix("*** in database main ***").split())
        raise StorageRefused(str(file), f"it is damaged: {problem}; {RESTORE}")
