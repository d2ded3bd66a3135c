"""The write-ahead log beside the database, where SQLite leaves something to be done."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import quote

import msgspec

from storage.embedded.errors import RESTORE
from storage.port import StorageRefused

LARGEST_BYTES = 64 * 1024 * 1024
"""What checkpoints that succeed leave of it. They keep it much smaller; an outsize commit may make it larger for a while."""

_CHUNK_BYTES = 1024 * 1024
_ROW = tuple[str, str, int, str]
_HISTORY = tuple[tuple[str, int], ...]


def log_of(file: Path) -> Path:
    """Where SQLite keeps the log of this database."""
    return file.with_name(f"{file.name}-wal")


def is_there(file: Path) -> bool:
    """Something may be in it that the database does not have."""
    return _size(file) > 0


def is_outgrown(file: Path) -> bool:
    """Its checkpoints have failed for some time, or could not end because somebody reads without an end."""
    return _size(file) > LARGEST_BYTES


def see_that_it_is_whole(file: Path, connection: sqlite3.Connection) -> None:
    """See that it still has all that was copied out of it: SQLite takes what follows a damaged place for never written.

    Pages of before would then stand beside copied ones of after. No crash does that, for the log is synced before it is copied.

    Raises:
        StorageRefused: It has lost commits which the database has.
    """
    if not is_there(file):
        return
    known = {each.partition: each for each in _commits(connection)}
    for each in _commits_without_log(file):
        if each.is_later_than(known.get(each.partition)):
            problem = f"it was damaged or cut, for the database has later commits of {each.partition}; {RESTORE}"
            raise StorageRefused(str(log_of(file)), problem)


def write_again(file: Path) -> None:
    """Make durable what can be read of the log, by writing the very same bytes over it. The caller is alone in writing.

    After a sync that failed the system shows bytes that the disk does not have, and calls them written: a process that died then
    leaves commits behind which look whole, and no later sync would bring them to the disk.
    """
    try:
        descriptor = os.open(log_of(file), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        offset = 0
        while chunk := os.pread(descriptor, _CHUNK_BYTES, offset):
            offset += os.pwrite(descriptor, chunk, offset)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _size(file: Path) -> int:
    log = log_of(file)
    return log.stat().st_size if log.exists() else 0


class _LastCommit(NamedTuple):
    partition: str
    token: str
    number: int
    history: tuple[tuple[str, int], ...]

    def is_later_than(self, known: Self | None) -> bool:
        """It descends from the known one, and something was committed since. What is half copied makes no sense, and is not."""
        commits = dict(self.history) | {self.token: self.number}
        if known is None:
            return any(commits.values())
        return commits.get(known.token, -1) > known.number or (
            known.token != self.token and commits.get(known.token) == known.number and self.number > 0
        )


def _commits(connection: sqlite3.Connection) -> list[_LastCommit]:
    commits = []
    for row in connection.execute("SELECT topic || '-' || number, token, commit_number, history FROM partitions"):
        partition, token, number, history = msgspec.convert(row, _ROW)
        commits.append(_LastCommit(partition, token, number, msgspec.json.decode(history, type=_HISTORY)))
    return commits


def _commits_without_log(file: Path) -> list[_LastCommit]:
    """As the database alone has it. What a copying that was cut short left there cannot always be read, and need not be."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(file))}?immutable=1", uri=True)) as alone:
            return _commits(alone)
    except (sqlite3.DatabaseError, msgspec.MsgspecError):
        return []
