"""The progress of a partition in the embedded storage, for programs that do not own it."""

import sqlite3
from pathlib import Path
from typing import NamedTuple

from domain.record import Partition
from storage.embedded.read_only import reading

_PROGRESS = "SELECT id, next_offset, highest_number FROM partitions WHERE topic = ? AND number = ? AND next_offset IS NOT NULL"
_OLDEST_STASHED = "SELECT MIN(arrived) FROM stash JOIN units ON units.id = unit_id WHERE partition = ?"


class Progress(NamedTuple):
    """The progress at one commit. Every record below `next_offset` is handled, or stashed at `oldest_stashed` or behind it.

    The output of handled records has numbers up to `highest_number`. Whether it is published, only the transport knows.
    """

    next_offset: int
    highest_number: int
    oldest_stashed: int | None


def find_progress(file: Path, partition: Partition) -> Progress | None:
    """Return the progress of a partition, None if nothing was ever committed.

    Changes neither the file nor its log, because a service may be using them.

    Raises:
        StorageRefused: The file is damaged or of another format.
        StorageUnavailable: The file does not answer.
    """
    with reading(file) as connection:
        if connection is None:
            return None
        connection.execute("BEGIN")
        return _progress(connection, partition)


def _progress(connection: sqlite3.Connection, partition: Partition) -> Progress | None:
    row = connection.execute(_PROGRESS, partition).fetchone()
    if row is None:
        return None
    key, next_offset, highest_number = row
    (oldest,) = connection.execute(_OLDEST_STASHED, (key,)).fetchone()
    return Progress(next_offset, highest_number, oldest)
