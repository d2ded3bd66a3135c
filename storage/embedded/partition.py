"""One partition in the embedded storage, for its owner."""

import sqlite3
from collections.abc import Collection, Container, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from domain.clock import Instant
from domain.record import Partition
from storage.embedded.change_log import note_changes
from storage.embedded.database import Database
from storage.fencing import LastCommit, advanced, check_owner, is_done, succeeded
from storage.marker import marker_of
from storage.port import Commit, Header, Pending, Snapshot, StashEntry, WaitKind, Waits

EXPIRED_PER_CALL = 1_000
_RELEASED_PER_CALL = 1_000

_History = tuple[tuple[str, int], ...]

WAITS_COLUMNS = "wakes_at, kind, since, waits_for, strategy, stashed, stashed_bytes"
_FIND_PARTITION = """
SELECT id, token, commit_number, next_offset, highest_number, heal_offset, history, source, caught_up_ms, orders,
    source_state
FROM partitions WHERE topic = ? AND number = ?
"""
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
UPDATE partitions SET commit_number = ?, attempt = ?, next_offset = ?, highest_number = ?, heal_offset = ?,
    source = ?, caught_up_ms = ?, orders = ?, source_state = ? WHERE id = ?
"""
_LOAD_UNIT = """
SELECT id, state, body FROM units LEFT JOIN payment_data ON unit_id = id WHERE partition = ? AND unit = ?
"""
_LOAD_STASH = "SELECT arrived, body FROM stash WHERE unit_id = ? ORDER BY arrived"
_WAITING = f"""
SELECT unit, {WAITS_COLUMNS} FROM units INDEXED BY waiting WHERE partition = ? AND wakes_at IS NOT NULL ORDER BY wakes_at
"""  # noqa: S608
_PENDING = "SELECT number, body FROM pending WHERE partition = ? ORDER BY number"
_OLD = """
SELECT id, unit FROM units INDEXED BY idle WHERE partition = ? AND wakes_at IS NULL AND changed_at <= ? ORDER BY changed_at
"""


def find_partition(connection: sqlite3.Connection, partition: Partition) -> tuple[int, Header] | None:
    """Return the partition's id and its header, None if it was never opened."""
    row = connection.execute(_FIND_PARTITION, partition).fetchone()
    if row is None:
        return None
    key, token, commit, next_offset, highest_number, heal_offset, history, source, *rest = row
    known = msgspec.json.decode(history, type=_History)
    return key, Header(token, commit, next_offset, highest_number, heal_offset, known, source, *rest)


def find_snapshot(connection: sqlite3.Connection, key: int, unit: str) -> Snapshot | None:
    """Return a unit of the partition with the id `key`, in the caller's transaction."""
    row = connection.execute(_LOAD_UNIT, (key, bytearray(unit.encode()))).fetchone()
    if row is None:
        return None
    unit_id, state, payment_data = row
    stash = connection.execute(_LOAD_STASH, (unit_id,))
    return Snapshot(unit, state, payment_data, tuple(StashEntry(*entry) for entry in stash))


def waits_of(wakes_at: Instant, kind: str, since: Instant, waits_for: str, *rest: Any) -> Waits:
    """Return the waits of a row with the columns of `WAITS_COLUMNS`."""
    return Waits(wakes_at, WaitKind(kind), since, waits_for, *rest)


def take(connection: sqlite3.Connection, partition: Partition, token: str) -> tuple[int, Header]:
    """Set a new owner in the caller's transaction. Return the partition's id and the new header."""
    found = find_partition(connection, partition)
    if found is None:
        header = succeeded(None, token)
        sql = "INSERT INTO partitions (topic, number, token, commit_number, highest_number, heal_offset, history)"
        cursor = connection.execute(f"{sql} VALUES (?, ?, ?, 0, 0, 0, '[]')", (*partition, token))
        assert cursor.lastrowid is not None
        return cursor.lastrowid, header
    key, old = found
    header = succeeded(old, token)
    connection.execute(
        "UPDATE partitions SET token = ?, commit_number = 0, attempt = NULL, history = ? WHERE id = ?",
        (token, msgspec.json.encode(header.history).decode(), key),
    )
    return key, header


class EmbeddedPartitionStore:
    """A partition's units in the file, under the token that `take` wrote."""

    def __init__(self, database: Database, key: int, header: Header) -> None:
        self._database = database
        self._key = key
        self._header = header

    @property
    def header(self) -> Header:
        return self._header

    def load(self, units: Collection[str]) -> Mapping[str, Snapshot]:
        with self._database.reading() as connection:
            check_owner(self._last_commit(connection), self._header)
            found = (find_snapshot(connection, self._key, unit) for unit in units)
            return {snapshot.unit: snapshot for snapshot in found if snapshot is not None}

    def waiting(self) -> Sequence[tuple[str, Waits]]:
        with self._database.reading() as connection:
            check_owner(self._last_commit(connection), self._header)
            rows = connection.execute(_WAITING, (self._key,))
            return [(unit.decode(), waits_of(*waits)) for unit, *waits in rows]

    def pending(self) -> Sequence[Pending]:
        with self._database.reading() as connection:
            check_owner(self._last_commit(connection), self._header)
            return [Pending(*row) for row in connection.execute(_PENDING, (self._key,))]

    def commit(self, commit: Commit) -> None:
        with self._database.writing() as connection:
            if not is_done(self._last_commit(connection), self._header, commit):
                self._store(connection, commit)
        self._header = advanced(self._header, commit)

    def expire(self, until: int, spared: Container[str]) -> int:
        """Remove expired units as the port requires. Also release free pages, and checkpoint an oversized log."""
        with self._database.writing() as connection:
            check_owner(self._last_commit(connection), self._header)
            rows = connection.execute(_OLD, (self._key, until))
            units = list(islice(((key,) for key, unit in rows if unit.decode() not in spared), EXPIRED_PER_CALL))
            rows.close()
            connection.executemany("DELETE FROM stash WHERE unit_id = ?", units)
            connection.executemany("DELETE FROM payment_data WHERE unit_id = ?", units)
            connection.executemany("DELETE FROM units WHERE id = ?", units)
        self._database.release_pages(_RELEASED_PER_CALL)
        self._database.look_after_log()
        return len(units)

    def _last_commit(self, connection: sqlite3.Connection) -> LastCommit:
        sql = "SELECT token, commit_number, attempt FROM partitions WHERE id = ?"
        row = connection.execute(sql, (self._key,)).fetchone()
        if row is None:
            raise ValueError("the row of a partition has another id")
        return LastCommit(*row)

    def _store(self, connection: sqlite3.Connection, commit: Commit) -> None:
        key = self._key
        self._change_units(connection, commit)
        connection.executemany(_ADD_PENDING, [(key, each.number, bytearray(each.body)) for each in commit.added])
        connection.execute(_DROP_PENDING, (key, commit.published))
        marker = marker_of(advanced(self._header, commit))
        note_changes(connection, key, marker, [change.unit for change in commit.changes])
        progress = (commit.number, commit.attempt, commit.next_offset, commit.highest_number, commit.heal_offset)
        connection.execute(_ADVANCE, (*progress, commit.source, commit.caught_up_ms, commit.orders, commit.source_state, key))

    def _change_units(self, connection: sqlite3.Connection, commit: Commit) -> None:
        """Write the changed units. Bytes are bound as `bytearray`: `sqlite3` looks for an adapter of each `bytes` and None."""
        key, at = self._key, commit.caught_up_ms
        waiting, idle, data, unstashed, stashed = (list[tuple[object, ...]]() for _ in range(5))
        for change in commit.changes:
            waits, unit = change.waits, bytearray(change.unit.encode())
            row = (key, unit, at, bytearray(change.state))
            if waits is None:
                idle.append(row)
            else:
                how = (waits.since, waits.waits_for, waits.strategy, waits.stashed, waits.stashed_bytes)
                waiting.append((*row, waits.wakes_at, waits.kind.value, *how))
            if change.payment_data is not None:
                data.append((key, unit, bytearray(change.payment_data)))
            unstashed += [(key, unit, offset) for offset in change.stash_removed]
            stashed += [(key, unit, entry.offset, bytearray(entry.body)) for entry in change.stash_added]
        written = ((_CHANGE_WAITING, waiting), (_CHANGE_IDLE, idle), (_SET_PAYMENT_DATA, data), (_UNSTASH, unstashed))
        for statement, rows in (*written, (_STASH, stashed)):
            connection.executemany(statement, rows)
