"""A store in files. Values and the offset of the commands are one transaction of SQLite; output follows as numbered lines."""

import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import msgspec
from msgspec.structs import replace

from guardian.headers import MARKED, POSSIBLE_DUPLICATE
from guardian.pending_output import from_pending, to_pending
from guardian.ports import OutputRecord, PartitionOutput, Polled, Position, Transport, TransportRefused, TransportUnavailable
from notification_service.aggregation.core import Slot, Stored, Values, numbered
from notification_service.aggregation.port import Step
from resequencer.clock import Instant
from resequencer.record import Partition
from resequencer.storage_port import Pending
from storage.private_file import make_lasting_directory, make_private, make_private_directory

_FORMAT = 1
_TABLES = f"""
    CREATE TABLE IF NOT EXISTS value (key TEXT NOT NULL, member TEXT NOT NULL, body BLOB NOT NULL, due INTEGER,
        checksum INTEGER NOT NULL, PRIMARY KEY (key, member)) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS value_due ON value (due, key) WHERE due IS NOT NULL;
    CREATE INDEX IF NOT EXISTS value_head ON value (key) WHERE member = '';
    CREATE TABLE IF NOT EXISTS progress (partition INTEGER PRIMARY KEY, next_offset INTEGER NOT NULL, number INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS pending (partition INTEGER, number INTEGER, body BLOB NOT NULL,
        PRIMARY KEY (partition, number)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS note (name TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
    PRAGMA user_version = {_FORMAT};
"""
"""Two processes may make the file at the same time: a worker, and one that looks on."""

_VALUES = "SELECT key, member, body, due, checksum FROM value"
_FIND_ALL = """
    SELECT value.key, value.member, value.body, value.due, value.checksum FROM json_each(?) AS wanted
        CROSS JOIN value ON value.key = wanted.value ->> 0 AND value.member = wanted.value ->> 1
"""
"""One query for many values. A query for each would take four times as long."""

_BUSY_SECONDS = 5.0
_MAX_CHANGED = 50_000
"""Of more keys it is cheaper to read all."""


class Progress(NamedTuple):
    """How far the commands of a partition were applied, and the highest number that a record of its output got."""

    next_offset: int
    number: int


class ValuesFile:
    """Implements `Values`. The file is opened or created on first use, and is then used from the same thread.

    With `is_copy` a power cut may take the last transactions, but never damages the file: they are read again.

    Each value has a checksum: SQLite notices damage only where it breaks its own structure.

    Raises (any call): TransportUnavailable: the disk fails or is full, or a copy is damaged; then `is_damaged` is True, and
    stays so until `clear`. TransportRefused: a file that is no copy is damaged.
    """

    def __init__(self, path: Path, *, is_copy: bool) -> None:
        self.path = path
        self.is_damaged = False
        self._is_copy = is_copy
        self._connection: sqlite3.Connection | None = None
        self._changed: set[str] | None = None

    def find(self, slot: Slot) -> Stored | None:
        with self._translated():
            row = self._opened().execute(f"{_VALUES} WHERE key = ? AND member = ?", slot).fetchone()
            return None if row is None else _checked(row)[1]

    def find_all(self, slots: Collection[Slot]) -> Mapping[Slot, Stored]:
        wanted = msgspec.json.encode(sorted(slots)).decode()  # Neighbours are on one page.
        rows = self._rows(_FIND_ALL, wanted)
        with self._translated():
            return dict(map(_checked, rows))

    def due(self, until: Instant, limit: int) -> Sequence[str]:
        sql = "SELECT key FROM value WHERE due <= ? ORDER BY due, key LIMIT ?"
        return [key for (key,) in self._rows(sql, until, limit)]

    def keys(self, after: str, limit: int) -> Sequence[str]:
        sql = "SELECT key FROM value WHERE key > ? AND member = '' ORDER BY key LIMIT ?"
        return [key for (key,) in self._rows(sql, after, limit)]

    def members(self, key: str, limit: int) -> Sequence[str]:
        sql = "SELECT member FROM value WHERE key = ? AND member > '' ORDER BY member LIMIT ?"
        return [member for (member,) in self._rows(sql, key, limit)]

    def member_values(self, key: str, after: str, limit: int) -> Sequence[tuple[str, bytes]]:
        """Return members of a key behind `after` with their values, in the order of their names."""
        rows = self._rows(f"{_VALUES} WHERE key = ? AND member > ? ORDER BY member LIMIT ?", key, after, limit)
        with self._translated():
            return [(slot.member, stored.body) for slot, stored in map(_checked, rows)]

    def heads(self, after: str, limit: int) -> Sequence[tuple[str, bytes]]:
        """Return keys behind `after` with their heads, in the order of the keys."""
        rows = self._rows(f"{_VALUES} WHERE member = '' AND key > ? ORDER BY key LIMIT ?", after, limit)
        with self._translated():
            return [(slot.key, stored.body) for slot, stored in map(_checked, rows)]

    def count(self) -> int:
        """Return how many values there are, of members too. Takes time in proportion to them."""
        return int(self._rows("SELECT count(*) FROM value")[0][0])

    def is_empty(self) -> bool:
        return not self._rows("SELECT 1 FROM value LIMIT 1")

    def note(self, name: str) -> str | None:
        """Return a text that was written under this name."""
        rows = self._rows("SELECT text FROM note WHERE name = ?", name)
        return rows[0][0] if rows else None

    def progress(self, partition: int) -> Progress | None:
        rows = self._rows("SELECT next_offset, number FROM progress WHERE partition = ?", partition)
        return Progress(*rows[0]) if rows else None

    def pending(self, partition: int) -> Sequence[tuple[int, bytes]]:
        """Return what was written to be published, by ascending number."""
        return self._rows("SELECT number, body FROM pending WHERE partition = ? ORDER BY number", partition)

    def take_changed(self) -> Collection[str] | None:
        """Return the keys whose values this object has written since the last call; None if these are unknown or too many."""
        changed, self._changed = self._changed, set()
        return changed

    @contextmanager
    def writing(self) -> Iterator["Writing"]:
        """Run a transaction; what raises in it is rolled back."""
        with self._translated():
            connection = self._opened()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield Writing(connection, self._note_changed)
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise

    def clear(self) -> None:
        """Delete the file, and begin with an empty one."""
        self.close()
        self._changed = None
        try:
            for suffix in ("", "-wal", "-shm"):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        except OSError as error:
            raise TransportUnavailable(f"{self.path} cannot be deleted: {error}") from error
        self.is_damaged = False

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def _note_changed(self, slots: Iterable[Slot]) -> None:
        if self._changed is not None:
            self._changed.update(slot.key for slot in slots)
            if len(self._changed) > _MAX_CHANGED:
                self._changed = None

    def _rows(self, sql: str, *values: object) -> list[tuple]:  # type: ignore[type-arg]
        with self._translated():
            return self._opened().execute(sql, values).fetchall()

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            if self._is_copy:
                make_private_directory(self.path.parent)
            else:
                make_lasting_directory(self.path.parent)  # Others read the completions there.
            connection = sqlite3.connect(make_private(self.path), timeout=_BUSY_SECONDS, isolation_level=None)
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {'NORMAL' if self._is_copy else 'FULL'}")
        connection.execute("PRAGMA cache_size = -65536")
        found = connection.execute("PRAGMA user_version").fetchone()[0]
        if found == 0:
            connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} COMMIT;")
        elif found != _FORMAT and self._is_copy:
            raise sqlite3.DatabaseError(f"format {found}")
        elif found != _FORMAT:
            raise TransportRefused(str(self.path), f"it has format {found}; start the version that wrote it")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            if type(error) not in (sqlite3.DatabaseError, sqlite3.OperationalError):
                raise  # A mistake of the program.
            if not _is_damage(error):
                raise TransportUnavailable(f"{self.path}: {error}") from error
            self.is_damaged = True
            if self._is_copy:
                raise TransportUnavailable(f"{self.path} is damaged ({error}), and is read again from the brokers") from error
            raise TransportRefused(str(self.path), f"it is damaged ({error}). Restore it from a backup") from error
        except OSError as error:
            raise TransportUnavailable(f"{self.path}: {error}") from error


class Writing:
    """One transaction."""

    def __init__(self, connection: sqlite3.Connection, on_put: Callable[[Iterable[Slot]], None]) -> None:
        self._connection = connection
        self._on_put = on_put

    def put(self, changes: Mapping[Slot, Stored | None]) -> None:
        """Write values; None deletes one."""
        self._on_put(changes)
        written = [(*slot, each.body, each.due, _checksum(slot, each)) for slot, each in changes.items() if each is not None]
        deleted = [slot for slot, stored in changes.items() if stored is None]
        written.sort()  # Neighbours are on one page, which is then written once.
        self._connection.executemany("INSERT OR REPLACE INTO value VALUES (?, ?, ?, ?, ?)", written)
        self._connection.executemany("DELETE FROM value WHERE key = ? AND member = ?", deleted)

    def note(self, name: str, text: str) -> None:
        self._connection.execute("INSERT OR REPLACE INTO note VALUES (?, ?)", (name, text))

    def progress(self, partition: int, progress: Progress) -> None:
        self._connection.execute("INSERT OR REPLACE INTO progress VALUES (?, ?, ?)", (partition, *progress))

    def add_pending(self, partition: int, bodies: Iterable[tuple[int, bytes]]) -> None:
        self._connection.executemany("INSERT INTO pending VALUES (?, ?, ?)", [(partition, *each) for each in bodies])

    def remove_pending(self, partition: int, up_to: int) -> None:
        self._connection.execute("DELETE FROM pending WHERE partition = ? AND number <= ?", (partition, up_to))


def _checksum(slot: Slot, stored: Stored) -> int:
    return crc32(stored.body, crc32(f"{slot.key}/{slot.member}/{stored.due}".encode()))


def _checked(row: tuple[str, str, bytes, Instant | None, int]) -> tuple[Slot, Stored]:
    key, member, body, due, checksum = row
    slot, stored = Slot(key, member), Stored(body, due)
    if _checksum(slot, stored) != checksum:
        raise sqlite3.DatabaseError(f"the value of {key!r} has another checksum")
    return slot, stored


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """Return whether the content is to blame. A disk that fails or is full has a code of its own, a missing table has not."""
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return not isinstance(error, sqlite3.OperationalError) or code == sqlite3.SQLITE_ERROR


_MARK = (POSSIBLE_DUPLICATE, MARKED)


class FileStore:
    """`transport` reads the commands and writes the output, `values_file` holds the values of all partitions.

    Output is in the values' transaction until it is written, so that a crash neither loses nor doubles it: each record has a
    number, and the transport knows which numbers it has written.
    """

    def __init__(self, transport: Transport, values_file: Path) -> None:
        self._transport = transport
        self._file = ValuesFile(values_file, is_copy=False)
        self._progress: dict[Partition, Progress] = {}
        self._published: dict[Partition, int] = {}
        self._repeats_to: dict[Partition, int] = {}

    @property
    def shares_values(self) -> bool:
        return True

    @property
    def notes(self) -> tuple[str, ...]:
        return self._transport.standing().notes

    def assignment(self) -> Collection[Partition]:
        return self._transport.assignment()

    def take_over(self, partition: Partition) -> int:
        """As the port describes. Without its values the commands are read from their beginning. Values that were set back
        continue from where they are. What may have been written before is marked as a possible duplicate.
        """
        position, progress = self._transport.position(partition), self._file.progress(partition.number)
        written = int(position.metadata or 0) if position is not None else 0
        written_to = 0 if position is None else max(written, position.highest, *position.beyond)
        if progress is None or progress.number < written_to:
            progress = self._continue_behind(partition, progress, written_to, is_ahead=written_to > written)
        self._repeats_to[partition] = int(self._file.note(_repeats_name(partition)) or 0)
        self._progress[partition], self._published[partition] = progress, written
        self._publish({partition: self._pending(partition)})
        self._transport.seek(partition, progress.next_offset)
        return progress.next_offset

    def values(self, partition: Partition) -> Values:  # noqa: ARG002 - All partitions have the same values.
        return self._file

    def let_go(self, partition: Partition) -> None:
        self._progress.pop(partition, None)

    def poll(self, max_records: int, timeout_ms: int) -> Polled:
        return self._transport.poll(max_records, timeout_ms)

    def commit(self, steps: Mapping[Partition, Step]) -> None:
        output = {partition: self._numbered(partition, step) for partition, step in steps.items()}
        with self._file.writing() as writing:
            for partition, step in steps.items():
                writing.put(step.turn.changes)
                writing.remove_pending(partition.number, self._published[partition])
                writing.add_pending(partition.number, [_to_row(to_pending(each)) for each in output[partition]])
                number = self._progress[partition].number + len(output[partition])
                writing.progress(partition.number, Progress(step.next_offset, number))
        for partition, step in steps.items():
            number = self._progress[partition].number + len(output[partition])
            self._progress[partition] = Progress(step.next_offset, number)
        self._publish(output)

    def close(self) -> None:
        self._transport.close()
        self._file.close()

    def _publish(self, output: Mapping[Partition, list[OutputRecord]]) -> None:
        """Write output that is in the values' file, and note in the position that it is written."""
        self._transport.publish([PartitionOutput(each, tuple(records), self._position(each)) for each, records in output.items()])
        for partition in output:
            self._published[partition] = self._progress[partition].number

    def _continue_behind(self, partition: Partition, progress: Progress | None, written_to: int, *, is_ahead: bool) -> Progress:
        """Note that the values are older than the output, which is written up to `written_to`; return the new progress.

        Numbers are not used twice: the transport passes over those that it has written. What is pending in older values is
        written. With `is_ahead` output is written beyond the position, and it is unknown which commands caused it.
        """
        next_offset = self._transport.start_offset(partition) if progress is None else progress.next_offset
        found = self._transport.position(partition)
        repeats_to = self._transport.end_offset(partition) if is_ahead else found.offset if found is not None else 0
        with self._file.writing() as writing:
            writing.progress(partition.number, Progress(next_offset, written_to))
            writing.note(_repeats_name(partition), str(repeats_to))
        return Progress(next_offset, written_to)

    def _position(self, partition: Partition) -> Position:
        """Return the position of the output: its metadata is the highest number that is written with it."""
        next_offset, number = self._progress[partition]
        return Position(next_offset, str(number))

    def _pending(self, partition: Partition) -> list[OutputRecord]:
        found = [from_pending(Pending(*row)) for row in self._file.pending(partition.number)]
        return [each for each in found if each.number > self._published[partition]]

    def _numbered(self, partition: Partition, step: Step) -> list[OutputRecord]:
        records = numbered(step.turn.output, self._progress[partition].number + 1)
        if not self._may_repeat(partition, step):
            return records
        return [replace(each, headers=(*each.headers, _MARK)) for each in records]

    def _may_repeat(self, partition: Partition, step: Step) -> bool:
        """Return whether output of the step may have been written before the values were lost."""
        repeats_to = self._repeats_to[partition]
        return self._progress[partition].next_offset < repeats_to or step.next_offset <= repeats_to


def _repeats_name(partition: Partition) -> str:
    """Return the name of the note of how far commands are read once more. A worker that dies meanwhile has a successor."""
    return f"repeats-to-{partition.number}"


def _to_row(pending: Pending) -> tuple[int, bytes]:
    return pending.number, pending.body
