"""Read-only connections to the embedded storage's file, for programs that own nothing."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from resequencer.record import Partition
from resequencer.storage_port import StorageRefused
from storage.embedded.commit_log import log_of, read_log
from storage.embedded.errors import RESTORE, translated
from storage.embedded.partition import find_header, find_key
from storage.embedded.schema import check_format
from storage.embedded.tail import Tail, find_tail

_BUSY_SECONDS = 5
_READS = 5
"""So often a log is read that does not follow: its owner may have emptied it and gone on while it was read."""


class Committed(NamedTuple):
    """All that is committed of a partition: a transaction that reads the database, the partition's id there, and the tail."""

    connection: sqlite3.Connection
    key: int
    tail: Tail


@contextmanager
def reading(file: Path) -> Iterator[sqlite3.Connection | None]:
    """Open the file and close it at the end; None if it does not exist. Errors of the statements inside are translated.

    The connection changes neither the file nor its log, because a service may be using them.

    Raises:
        StorageRefused: The file is damaged, or of another format.
        StorageUnavailable: The file does not answer.
    """
    if not file.exists():
        yield None
        return
    if not file.stat().st_size:
        raise StorageRefused(str(file), f"it is empty, so it was truncated; {RESTORE}")
    # Read-only. Otherwise closing it would copy the log of a dead service into the database before the service has checked it.
    uri = f"file:{quote(str(file))}?mode=ro"
    with translated(file), closing(sqlite3.connect(uri, timeout=_BUSY_SECONDS, isolation_level=None, uri=True)) as connection:
        check_format(connection, file)
        yield connection


@contextmanager
def committed(file: Path, partition: Partition) -> Iterator[Committed | None]:
    """Read the log of a partition, and then begin to read the database; None if the partition was never opened.

    In this order nothing is missing: what the log has no longer is in the database.

    Raises: as `reading`.
    """
    with reading(file) as connection:
        key = None if connection is None else find_key(connection, partition)
        if connection is None or key is None:
            yield None
            return
        tail = _read_tail(connection, key, log_of(file, key))
        yield Committed(connection, key, tail) if tail.header.token else None


def _read_tail(connection: sqlite3.Connection, key: int, log: Path) -> Tail:
    """Read the log, and leave a transaction open that reads the database as it was then, or later."""
    for attempt in range(_READS):
        contents = read_log(log)
        connection.execute("BEGIN")
        try:
            return find_tail(log, contents, find_header(connection, key))
        except StorageRefused:
            if attempt == _READS - 1:
                raise
            connection.execute("COMMIT")
    raise AssertionError
