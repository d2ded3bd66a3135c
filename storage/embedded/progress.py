"""How far a partition got, by what the embedded storage holds, for whoever does not own it."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from domain.record import Partition
from storage.embedded.errors import RESTORE, translated
from storage.embedded.schema import check_format
from storage.port import StorageRefused

_BUSY_SECONDS = 5
_PROGRESS = "SELECT id, next_offset, highest_number FROM partitions WHERE topic = ? AND number = ? AND next_offset IS NOT NULL"
_OLDEST_STASHED = "SELECT MIN(arrived) FROM stash JOIN units ON units.id = unit_id WHERE partition = ?"


class Progress(NamedTuple):
    """As of one commit: every record below `next_offset` is handled, or set aside at `oldest_stashed` or behind it.

    What the handled ones caused has numbers up to `highest_number`; whether it has left, the transport knows.
    """

    next_offset: int
    highest_number: int
    oldest_stashed: int | None


def find_progress(file: Path, partition: Partition) -> Progress | None:
    """None where nothing was ever committed. A service may be using the file: nothing in it changes, nor in its log.

    Raises:
        StorageRefused: It is damaged or of another format.
        StorageUnavailable: No answer.
    """
    if not file.exists():
        return None
    if not file.stat().st_size:
        raise StorageRefused(str(file), f"it is empty, so it was cut; {RESTORE}")
    # Read-only, or closing it would copy the log of a service that died into the database, before that has looked at it.
    uri = f"file:{quote(str(file))}?mode=ro"
    with translated(file), closing(sqlite3.connect(uri, timeout=_BUSY_SECONDS, isolation_level=None, uri=True)) as connection:
        check_format(connection, file)
        connection.execute("BEGIN")
        return _progress(connection, partition)


def _progress(connection: sqlite3.Connection, partition: Partition) -> Progress | None:
    row = connection.execute(_PROGRESS, partition).fetchone()
    if row is None:
        return None
    key, next_offset, highest_number = row
    (oldest,) = connection.execute(_OLDEST_STASHED, (key,)).fetchone()
    return Progress(next_offset, highest_number, oldest)
