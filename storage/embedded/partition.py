"""One partition in the embedded storage, for its owner."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import replace

from resequencer.clock import Instant
from resequencer.errors import OwnershipLost
from resequencer.record import Partition
from resequencer.storage_port import (
    Commit,
    Header,
    Pending,
    Snapshot,
    StashEntry,
    StorageRefused,
    StorageUnavailable,
    WaitKind,
    Waits,
)
from storage.embedded.change_log import note_changes
from storage.embedded.commit_log import CommitLog, framed
from storage.embedded.database import Database, upgrade
from storage.embedded.tail import Tail, find_tail, read_commit, refuse_damage
from storage.fencing import is_done, succeeded
from storage.view_port import marker_of

EXPIRED_PER_CALL = 1_000
_RELEASED_PER_CALL = 1_000

_COMMITS = 64
"""After so many commits a checkpoint is due."""

LARGEST_BYTES = 64 * 1024 * 1024
"""The bound of a log. Beyond it no commit is made before a checkpoint succeeds."""

_History = tuple[tuple[str, int], ...]

WAITS_COLUMNS = "wakes_at, kind, since, waits_for, strategy, stashed, stashed_bytes"
_FIND_HEADER = """
SELECT token, commit_number, next_offset, highest_number, heal_offset, history, source, caught_up_ms, orders, source_state
FROM partitions WHERE id = ?
"""
_FIND_KEY = "SELECT id FROM partitions WHERE topic = ? AND number = ?"
_ADD_PARTITION = """
INSERT OR IGNORE INTO partitions (topic, number, token, commit_number, highest_number, heal_offset, history)
VALUES (?, ?, '', 0, 0, 0, '[]')
"""
_SET_OWNER = "UPDATE partitions SET token = ?, commit_number = 0, last_attempt = NULL, history = ? WHERE id = ?"
_UNIT_ID = "(SELECT id FROM units WHERE partition = ? AND unit = ?)"
_CHANGE_WAITING = f"""
INSERT INTO units (partition, unit, changed_at, state, {WAITS_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (partition, unit) DO UPDATE SET
    changed_at = excluded.changed_at, state = excluded.state, wakes_at = excluded.wakes_at, kind = excluded.kind,
    since = excluded.since, waits_for = excluded.waits_for, strategy = excluded.strategy, stashed = excluded.stashed,
    stashed_bytes = excluded.stashed_bytes
"""  # noqa: S608
_CHANGE_IDLE = """
INSERT INTO units (partition, unit, changed_at, state) VALUES (?, ?, ?, ?)
ON CONFLICT (partition, unit) DO UPDATE SET
    changed_at = excluded.changed_at, state = excluded.state, wakes_at = NULL, kind = NULL, since = NULL, waits_for = NULL,
    strategy = NULL, stashed = NULL, stashed_bytes = NULL
"""
_SET_PAYMENT_DATA = f"INSERT OR REPLACE INTO payment_data (unit_id, body) VALUES ({_UNIT_ID}, ?)"  # noqa: S608
_UNSTASH = f"DELETE FROM stash WHERE unit_id = {_UNIT_ID} AND arrived = ?"  # noqa: S608
_STASH = f"INSERT OR REPLACE INTO stash (unit_id, arrived, body) VALUES ({_UNIT_ID}, ?, ?)"  # noqa: S608
_ADD_PENDING = "INSERT OR REPLACE INTO pending (partition, number, body) VALUES (?, ?, ?)"
_DROP_PENDING = "DELETE FROM pending WHERE partition = ? AND number <= ?"
_ADVANCE = """
UPDATE partitions SET commit_number = ?, last_attempt = ?, next_offset = ?, highest_number = ?, heal_offset = ?,
    source = ?, caught_up_ms = ?, orders = ?, source_state = ? WHERE id = ?
"""
_LOAD_UNIT = """
SELECT id, state, body FROM units LEFT JOIN payment_data ON unit_id = id WHERE partition = ? AND unit = ?
"""
_LOAD_STASH = "SELECT arrived, body FROM stash WHERE unit_id = ? ORDER BY arrived"
_WAITING = f"""
SELECT unit, {WAITS_COLUMNS} FROM units INDEXED BY waiting WHERE partition = ? AND wakes_at IS NOT NULL ORDER BY wakes_at
"""  # noqa: S608
_ANY_UNIT = "SELECT 1 FROM units WHERE partition = ? LIMIT 1"
_PENDING = "SELECT number, body FROM pending WHERE partition = ? ORDER BY number"
_OLD = """
SELECT id, unit FROM units INDEXED BY idle WHERE partition = ? AND wakes_at IS NULL AND changed_at <= ? ORDER BY changed_at
"""


def find_key(connection: sqlite3.Connection, partition: Partition) -> int | None:
    """Return the partition's id, None if it was never opened."""
    row = connection.execute(_FIND_KEY, partition).fetchone()
    return None if row is None else row[0]


def find_header(connection: sqlite3.Connection, key: int) -> Header:
    """Return the header that the database has of the partition with this id; without a token if it has no owner yet."""
    row = connection.execute(_FIND_HEADER, (key,)).fetchone()
    if row is None:
        raise ValueError("the row of a partition has another id")
    token, commit, next_offset, highest_number, heal_offset, history, source, *rest = row
    known = msgspec.json.decode(history, type=_History)
    return Header(token, commit, next_offset, highest_number, heal_offset, known, source, *rest)


def find_snapshot(connection: sqlite3.Connection, key: int, unit: str) -> Snapshot | None:
    """Return a unit of the partition with the id `key`, in the caller's transaction."""
    row = connection.execute(_LOAD_UNIT, (key, bytearray(unit.encode()))).fetchone()
    if row is None:
        return None
    unit_id, state, data = row
    stash = connection.execute(_LOAD_STASH, (unit_id,))
    return Snapshot(unit, state, data, tuple(StashEntry(*entry) for entry in stash))


def waits_of(wakes_at: Instant, kind: str, since: Instant, waits_for: str, *rest: Any) -> Waits:
    """Return the waits of a row with the columns of `WAITS_COLUMNS`."""
    return Waits(wakes_at, WaitKind(kind), since, waits_for, *rest)


def key_of(connection: sqlite3.Connection, partition: Partition) -> int:
    """Return the partition's id, in the caller's write transaction. A new partition has no owner yet."""
    connection.execute(_ADD_PARTITION, partition)
    key: int = connection.execute(_FIND_KEY, partition).fetchone()[0]
    return key


def open_partition(database: Database, partition: Partition, token: str, room: Callable[[], int]) -> EmbeddedPartitionStore:
    """Take ownership: first of the log, which the owner before can then append nothing to, then of what the database has.

    `room` is as in `EmbeddedPartitionStore`.
    """
    with database.writing() as connection:
        upgrade(connection)
        key = key_of(connection, partition)
    log = CommitLog(database.file, key, database.busy_timeout_ms)
    try:
        with log.locked():
            contents = log.read()
            with database.reading() as connection:
                stored = find_header(connection, key)
            tail = find_tail(log.file, contents, stored)
            refuse_damage(log.file, contents, tail.header)
            log.announce(token)
            with database.writing() as connection:
                _store(connection, key, tail, stored.commit)
                header = _take(connection, key, tail.header, token)
            log.begin(token)
    except BaseException:
        log.close()
        raise
    return EmbeddedPartitionStore(database, key, header, log, room)


def _take(connection: sqlite3.Connection, key: int, before: Header, token: str) -> Header:
    """Set a new owner in the caller's transaction, and return the new header."""
    header = succeeded(before if before.token else None, token)
    connection.execute(_SET_OWNER, (token, msgspec.json.encode(header.history).decode(), key))
    return header


class EmbeddedPartitionStore:
    """A partition's units: in the file, and the last commits in the log alone, until a checkpoint takes them over.

    A checkpoint is due after `_COMMITS` commits, or when the log exceeds `room`. It is made before the next commit, and one that
    fails does not fail that commit, unless the log exceeds its bound. A commit without an answer is made again before anything
    else.
    """

    def __init__(self, database: Database, key: int, header: Header, log: CommitLog, room: Callable[[], int]) -> None:
        self._database = database
        self._key = key
        self._log = log
        self._room = room
        self._tail = Tail(header)
        self._tried: str | None = None
        self._put_off_at = 0, 0

    @property
    def header(self) -> Header:
        return self._tail.header

    def load(self, units: Collection[str]) -> Mapping[str, Snapshot]:
        changed, found = self._tail.units, dict[str, Snapshot]()
        self._log.see_owner()
        with self._database.reading() as connection:
            self._check_owner(connection)
            for unit in units:
                stored, known = find_snapshot(connection, self._key, unit), changed.get(unit)
                snapshot = stored if known is None else known.over(unit, stored)
                if snapshot is not None:
                    found[unit] = snapshot
        return found

    def waiting(self) -> Sequence[tuple[str, Waits]]:
        self.checkpoint()
        with self._database.reading() as connection:
            self._check_owner(connection)
            rows = connection.execute(_WAITING, (self._key,))
            return [(unit.decode(), waits_of(*waits)) for unit, *waits in rows]

    def has_units(self) -> bool:
        self.checkpoint()
        with self._database.reading() as connection:
            self._check_owner(connection)
            return connection.execute(_ANY_UNIT, (self._key,)).fetchone() is not None

    def pending(self) -> Sequence[Pending]:
        self.checkpoint()
        with self._database.reading() as connection:
            self._check_owner(connection)
            return [Pending(*row) for row in connection.execute(_PENDING, (self._key,))]

    def commit(self, commit: Commit) -> None:
        tail = self._tail
        if is_done(tail.last_commit, tail.header, commit):
            with self._log.locked():
                self._log.check_owner()
            return
        if self._is_due() and commit.attempt != self._tried:
            with suppress(StorageUnavailable) if self._log.end <= LARGEST_BYTES else nullcontext():
                self.checkpoint()
        read, self._tried = read_commit(commit), commit.attempt
        with self._log.locked():
            self._log.append(framed(self.header.token, commit))
        self._tail.add(commit, read)

    def checkpoint(self) -> None:
        """Let the database take over what the log has. A repeated one has no effect.

        Raises: as `load`.
        """
        tail = self._tail
        self._put_off_at = len(tail.commits), self._log.end  # For the case that it fails.
        with self._log.locked():
            self._log.check_owner()
            if not tail.commits:
                return
            with self._database.writing() as connection:
                self._check_owner(connection)
                stored = find_header(connection, self._key).commit
                if stored < tail.header.commit:
                    _store(connection, self._key, tail, stored)
            self._log.forget_all()
        self._tail, self._put_off_at = Tail(tail.header, tail.attempt), (0, 0)

    def _is_due(self) -> bool:
        """Whether a checkpoint is due: one that failed is due again only after as much more."""
        commits, end = self._put_off_at
        has_grown = len(self._tail.commits) - commits >= _COMMITS or self._log.end - end > self._room()
        return has_grown or self._log.end > LARGEST_BYTES

    def expire(self, until: int, spared: Container[str]) -> int:
        """Remove expired units as the port requires. Also release free pages, and checkpoint an oversized log."""
        self.checkpoint()
        with self._database.writing() as connection:
            self._check_owner(connection)
            rows = connection.execute(_OLD, (self._key, until))
            units = list(islice(((key,) for key, unit in rows if unit.decode() not in spared), EXPIRED_PER_CALL))
            rows.close()
            connection.executemany("DELETE FROM stash WHERE unit_id = ?", units)
            connection.executemany("DELETE FROM payment_data WHERE unit_id = ?", units)
            connection.executemany("DELETE FROM units WHERE id = ?", units)
        self._database.release_pages(_RELEASED_PER_CALL)
        self._database.look_after_log()
        return len(units)

    def end(self) -> None:
        """Leave all that was committed in the database, and no log, if that is possible now; and close the log."""
        with closing(self._log), suppress(StorageUnavailable, StorageRefused, OwnershipLost):
            self.checkpoint()
            with self._log.locked():
                self._log.check_owner()
                self._log.remove()

    def close(self) -> None:
        self._log.close()

    def _check_owner(self, connection: sqlite3.Connection) -> None:
        owner = find_header(connection, self._key).token
        if owner != self.header.token:
            raise OwnershipLost(f"this worker opened the partition as {self.header.token}, and {owner} did so since")


def _store(connection: sqlite3.Connection, key: int, tail: Tail, stored: int) -> None:
    """Write the tail in the caller's transaction. The database may have its commits up to `stored`."""
    if not tail.commits:
        return
    _change_units(connection, key, tail)
    connection.execute(_DROP_PENDING, (key, tail.published))
    connection.executemany(_ADD_PENDING, [(key, number, bytearray(body)) for number, body in tail.pending.items()])
    header = tail.header
    for number, units in tail.commits:
        if number > stored:
            note_changes(connection, key, marker_of(replace(header, commit=number)), units)
    progress = (header.commit, tail.attempt, header.next_offset, header.highest_number, header.heal_offset)
    connection.execute(_ADVANCE, (*progress, header.source, header.caught_up_ms, header.orders, header.source_state, key))


def _change_units(connection: sqlite3.Connection, key: int, tail: Tail) -> None:
    """Write the changed units. Bytes are bound as `bytearray`: `sqlite3` looks for an adapter of each `bytes` and None."""
    waiting, idle, data, unstashed, stashed = (list[tuple[object, ...]]() for _ in range(5))
    for name, each in tail.units.items():
        waits, unit = each.waits, bytearray(name.encode())
        row = (key, unit, each.changed_at, bytearray(each.state))
        if waits is None:
            idle.append(row)
        else:
            how = (waits.since, waits.waits_for, waits.strategy, waits.stashed, waits.stashed_bytes)
            waiting.append((*row, waits.wakes_at, waits.kind.value, *how))
        if each.data is not None:
            data.append((key, unit, bytearray(each.data)))
        unstashed += [(key, unit, offset) for offset in each.removed]
        stashed += [(key, unit, offset, bytearray(body)) for offset, body in each.added.items()]
    written = ((_CHANGE_WAITING, waiting), (_CHANGE_IDLE, idle), (_SET_PAYMENT_DATA, data), (_UNSTASH, unstashed))
    for statement, rows in (*written, (_STASH, stashed)):
        connection.executemany(statement, rows)
