"""Checks and repairs of the write-ahead log that SQLite does not make itself."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import quote

import msgspec

from resequencer.storage_port import StorageRefused
from storage.embedded.errors import RESTORE

LARGEST_BYTES = 64 * 1024 * 1024
"""The bound of the log. Checkpoints that succeed keep it much smaller; a very large commit may exceed it for a while."""

_CHUNK_BYTES = 1024 * 1024
_ROW = tuple[str, str, int, str]
_HISTORY = tuple[tuple[str, int], ...]


def log_of(file: Path) -> Path:
    """Return the path of this database's log."""
    return file.with_name(f"{file.name}-wal")


def is_there(file: Path) -> bool:
    """Whether the log has content, which the database may lack."""
    return _size(file) > 0


def is_outgrown(file: Path) -> bool:
    """Whether the log exceeds its bound: checkpoints have failed for some time, or a reader without an end blocks them."""
    return _size(file) > LARGEST_BYTES


def see_that_it_is_whole(file: Path, connection: sqlite3.Connection) -> None:
    """Check that the log still has all commits that were copied into the database.

    SQLite ignores everything behind a damaged place of the log. Then older pages from the log would mix with newer pages of the
    database. A crash cannot cause that, because the log is synced before it is copied.

    Raises:
        StorageRefused: The log has lost commits that the database has.
    """
    if not is_there(file):
        return
    known = {each.partition: each for each in _commits(connection)}
    for each in _commits_without_log(file):
        if each.is_later_than(known.get(each.partition)):
            problem = f"it was damaged or truncated: the database has later commits of {each.partition}; {RESTORE}"
            raise StorageRefused(str(log_of(file)), problem)


def write_again(file: Path) -> None:
    """Make the readable content of the log durable: write the same bytes again, and sync. The caller must be the only writer.

    After a failed sync the system may return bytes that the disk does not have, and consider them written. A process that was
    killed then leaves commits that look complete, and no later sync would write them to the disk.
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
        """Whether this commit descends from the known one with commits in between. False for half-copied data."""
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
    """Read the last commits from the database without its log; empty if an interrupted checkpoint left it unreadable."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(file))}?immutable=1", uri=True)) as alone:
            return _commits(alone)
    except (sqlite3.DatabaseError, msgspec.MsgspecError):
        return []
