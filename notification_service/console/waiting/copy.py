"""The console's copy of the index of waiting units: an SQLite file in the run directory, which may be deleted at any time."""

import os
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

from resequencer.clock import Instant
from resequencer.errors import ResequencerError
from resequencer.storage_port import Waits
from storage.private_file import make_private
from storage.view_port import WaitingChanges

NAME = "console.db"
VERSION = 2
"""The version of the tables. A copy of another version is deleted and filled again."""

_BOOT = Path("/proc/sys/kernel/random/boot_id")


@cache
def _find_boot() -> str:
    """Return what differs after each start of the machine; where that is not known, after each start of the process."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return uuid4().hex


_BUSY_SECONDS = 5
_ROWS_AT_ONCE = 2_000
_CACHE_KB = 64 * 1024
"""The ids of units are in no order, so that filling the index by id touches all of its pages."""
_WRONG = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

_TABLES = (
    "CREATE TABLE origin (name TEXT NOT NULL) STRICT",
    "CREATE TABLE partitions (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, marker TEXT, as_of INTEGER) STRICT",
    # What the units of a class have in common. There are few, so their counts are the totals, and filters choose among them.
    """CREATE TABLE classes (id INTEGER PRIMARY KEY, partition INTEGER NOT NULL, kind TEXT NOT NULL, waits_for TEXT NOT NULL,
        units INTEGER NOT NULL DEFAULT 0, envelopes INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0,
        UNIQUE (partition, kind, waits_for)) STRICT""",
    """CREATE TABLE waiting (id INTEGER PRIMARY KEY, unit TEXT NOT NULL, partition INTEGER NOT NULL, class INTEGER NOT NULL,
        since INTEGER NOT NULL, until INTEGER NOT NULL, envelopes INTEGER NOT NULL, bytes INTEGER NOT NULL) STRICT""",
    # Has all that a search by id looks at, so that it reads no row.
    "CREATE INDEX by_unit ON waiting (unit, partition, class, since)",
    # Each entry of an index ends with the row's id, so these are in the order in which pages are read.
    "CREATE INDEX by_age ON waiting (since)",
    "CREATE INDEX by_class ON waiting (class, since)",
    f"PRAGMA user_version = {VERSION}",
)


MIN_FREE_BYTES = 256 * 2**20
"""The copy does not grow into the last bytes of its disk: the workers' storage and output may lie there too."""


class CopyUnusable(ResequencerError):
    """The copy cannot be read or written at the moment; `is_damaged` if it must be deleted and filled again."""

    def __init__(self, file: Path, error: sqlite3.Error) -> None:
        super().__init__(f"{file}: {error}")
        self.is_damaged = getattr(error, "sqlite_errorcode", 0) & 0xFF in _WRONG


_Row = tuple[int, int, Instant, Instant, int, int]
"""A row's id, class, since, until, envelopes and bytes. No class of its own: a whole listing makes two for each unit."""


class _Seen:
    """The ids of rows that a whole listing named: a bit for each."""

    def __init__(self) -> None:
        self._bits = bytearray()

    def add(self, row: int) -> None:
        byte = row >> 3
        if byte >= len(self._bits):
            self._bits.extend(bytes(byte + 1 - len(self._bits) + 65_536))
        self._bits[byte] |= 1 << (row & 7)

    def __contains__(self, row: int) -> bool:
        byte = row >> 3
        return byte < len(self._bits) and bool(self._bits[byte] & 1 << (row & 7))


class WaitingCopy:
    """Written by one thread at a time; read by several, also while it is written. Nothing in it is needed again after a crash.

    `storage` names the storage that is copied, by the configuration. A copy of another storage is filled again. So is one that
    was written before the machine started: it is never synced, so a power cut may have kept a marker and lost rows.
    """

    def __init__(self, run_directory: Path, storage: str = "", min_free_bytes: int = MIN_FREE_BYTES) -> None:
        self.file = run_directory / NAME
        # A digest, because the address of a storage may have a password in it.
        self._origin = sha256(f"{storage} {_find_boot()}".encode()).hexdigest()
        self._min_free_bytes = min_free_bytes

    def markers(self) -> Mapping[str, tuple[str | None, Instant | None]]:
        """Return the marker and the instant of each partition in the copy; a copy that cannot be used is made again.

        Raises:
            CopyUnusable: It cannot be made: the disk is full, or the directory cannot be written.
        """
        try:
            return self._markers()
        except CopyUnusable as error:
            if not error.is_damaged:
                raise
            self.delete()
            return self._markers()

    def take(self, partition: str, changes: WaitingChanges, as_of: Instant) -> None:
        """Take the changes over, in several transactions. If it fails, the marker of before still holds.

        Raises:
            CopyUnusable: It cannot be written.
            StorageUnavailable, StorageRefused: As the portions raise them.
        """
        seen = _Seen() if changes.is_whole else None
        with self._writing() as connection:
            for portion in changes.portions:
                latest = list(dict(portion).items())
                for begin in range(0, len(latest), _ROWS_AT_ONCE):
                    self._leave_room()
                    with _transaction(connection):
                        _Change(connection, partition).apply(latest[begin : begin + _ROWS_AT_ONCE], seen)
            with _transaction(connection):
                if seen is not None:
                    _Change(connection, partition).delete_others(seen)
                _note(connection, partition, changes.marker, as_of)
                connection.execute("DELETE FROM classes WHERE units = 0")

    def _leave_room(self) -> None:
        disk = os.statvfs(self.file.parent)
        if disk.f_bavail * disk.f_frsize < self._min_free_bytes:
            problem = f"less than {self._min_free_bytes // 2**20} MB are free on its disk, which the service needs"
            raise CopyUnusable(self.file, sqlite3.OperationalError(problem))

    def delete(self) -> None:
        """Delete the files. Readers that have them open continue with what they have."""
        for suffix in ("", "-wal", "-shm"):
            self.file.with_name(self.file.name + suffix).unlink(missing_ok=True)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection | None]:
        """A read transaction; None if there is no copy yet.

        Raises:
            CopyUnusable: It cannot be read.
        """
        if not self.file.exists():
            yield None
            return
        # Not `mode=ro`: such a connection cannot make the log's index, which the last writer takes away with it.
        with self._opened("rw") as connection:
            connection.execute("PRAGMA query_only = ON")
            if not self._is_ours(connection):
                yield None
                return
            connection.execute("BEGIN")
            yield connection

    def _markers(self) -> Mapping[str, tuple[str | None, Instant | None]]:
        with self.reading() as connection:
            if connection is None:
                self.delete()
                with self._writing():
                    return {}
            return {name: (marker, at) for name, marker, at in connection.execute("SELECT name, marker, as_of FROM partitions")}

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with suppress(OSError):  # Why it cannot be made, SQLite says better.
            make_private(self.file)
        with self._opened("rwc") as connection:
            # A crash of the machine may damage the copy; then it is filled again.
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
            if _version(connection) == 0:
                connection.execute("PRAGMA journal_mode = WAL")
                with _transaction(connection):
                    if _version(connection) == 0:
                        for statement in _TABLES:
                            connection.execute(statement)
                        connection.execute("INSERT INTO origin (name) VALUES (?)", (self._origin,))
            yield connection

    def _is_ours(self, connection: sqlite3.Connection) -> bool:
        if _version(connection) != VERSION:
            return False
        origin: tuple[str] | None = connection.execute("SELECT name FROM origin").fetchone()
        return origin == (self._origin,)

    @contextmanager
    def _opened(self, mode: str) -> Iterator[sqlite3.Connection]:
        uri = f"file:{quote(str(self.file))}?mode={mode}"
        try:
            with closing(sqlite3.connect(uri, timeout=_BUSY_SECONDS, isolation_level=None, uri=True)) as connection:
                yield connection
        except sqlite3.Error as error:
            raise CopyUnusable(self.file, error) from error


class _Change:
    """Changes rows of one partition within a transaction, and the counts of their classes with them."""

    def __init__(self, connection: sqlite3.Connection, partition: str) -> None:
        self._connection = connection
        connection.execute("INSERT OR IGNORE INTO partitions (name) VALUES (?)", (partition,))
        (self._partition,) = connection.execute("SELECT id FROM partitions WHERE name = ?", (partition,)).fetchone()
        self._classes: dict[tuple[str, str], int] = {}
        self._units, self._envelopes, self._bytes = Counter[int](), Counter[int](), Counter[int]()

    def apply(self, units: Sequence[tuple[str, Waits | None]], seen: _Seen | None) -> None:
        """Bring the rows of these units, each named once, to what they wait for now. Rows that are right are not written."""
        old = self._find([unit for unit, _ in units])
        (next_id,) = self._connection.execute("SELECT coalesce(max(id), 0) + 1 FROM waiting").fetchone()
        gone: list[tuple[int]] = []
        changed: list[tuple[int | str, ...]] = []
        added: list[tuple[int | str, ...]] = []
        for unit, waits in units:
            row = old.get(unit)
            if waits is None:
                if row is not None:
                    gone.append((row[0],))
                    self._count(row, -1)
                continue
            row_id = next_id if row is None else row[0]
            new = (row_id, self._class(waits), waits.since, waits.wakes_at, waits.stashed, waits.stashed_bytes)
            if row is None:
                next_id += 1
                added.append((unit, self._partition, *new))
                self._count(new, 1)
            elif row != new:
                changed.append((*new[1:], row_id))
                self._count(new, 1)
                self._count(row, -1)
            if seen is not None:
                seen.add(row_id)
        self._connection.executemany("DELETE FROM waiting WHERE id = ?", gone)
        self._connection.executemany(
            "UPDATE waiting SET class = ?, since = ?, until = ?, envelopes = ?, bytes = ? WHERE id = ?", changed
        )
        self._connection.executemany(
            "INSERT INTO waiting (unit, partition, id, class, since, until, envelopes, bytes) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            added,
        )
        self._store_counts()

    def delete_others(self, seen: _Seen) -> None:
        """Delete the partition's rows that were not seen."""
        ids = "SELECT waiting.id FROM classes JOIN waiting ON waiting.class = classes.id WHERE classes.partition = ?"
        unseen = [row for (row,) in self._connection.execute(ids, (self._partition,)) if row not in seen]
        delete = "DELETE FROM waiting WHERE id = ? RETURNING id, class, since, until, envelopes, bytes"
        for row in unseen:
            self._count(self._connection.execute(delete, (row,)).fetchall()[0], -1)
        self._store_counts()

    def _find(self, units: Sequence[str]) -> dict[str, _Row]:
        marks = ",".join("?" * len(units))
        columns = "unit, id, class, since, until, envelopes, bytes"
        query = f"SELECT {columns} FROM waiting WHERE partition = ? AND unit IN ({marks})"  # noqa: S608 - marks alone.
        return {row[0]: row[1:] for row in self._connection.execute(query, (self._partition, *units))}

    def _class(self, waits: Waits) -> int:
        name = (waits.kind.value, waits.shown_waits_for)
        known = self._classes.get(name)
        if known is None:
            key = (self._partition, *name)
            self._connection.execute("INSERT OR IGNORE INTO classes (partition, kind, waits_for) VALUES (?, ?, ?)", key)
            find = "SELECT id FROM classes WHERE partition = ? AND kind = ? AND waits_for = ?"
            (known,) = self._connection.execute(find, key).fetchone()
            self._classes[name] = known
        return known

    def _count(self, row: _Row, times: int) -> None:
        _, in_class, _, _, envelopes, size = row
        self._units[in_class] += times
        self._envelopes[in_class] += times * envelopes
        self._bytes[in_class] += times * size

    def _store_counts(self) -> None:
        self._connection.executemany(
            "UPDATE classes SET units = units + ?, envelopes = envelopes + ?, bytes = bytes + ? WHERE id = ?",
            [(units, self._envelopes[each], self._bytes[each], each) for each, units in self._units.items()],
        )
        for counter in (self._units, self._envelopes, self._bytes):
            counter.clear()


def _note(connection: sqlite3.Connection, partition: str, marker: str, as_of: Instant) -> None:
    connection.execute(
        "INSERT INTO partitions (name, marker, as_of) VALUES (?, ?, ?)"
        " ON CONFLICT (name) DO UPDATE SET marker = excluded.marker, as_of = excluded.as_of",
        (partition, marker, as_of),
    )


def _version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
