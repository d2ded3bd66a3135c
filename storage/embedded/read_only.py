"""Read-only connections to the embedded storage's file, for programs that own nothing."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from storage.embedded.errors import RESTORE, translated
from storage.embedded.schema import check_format
from storage.port import StorageRefused

_BUSY_SECONDS = 5


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
