"""Transport `tables`: input and output are tables of an SQLite database. What leaves and the positions are one transaction."""

import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import msgspec

from guardian.ports import PartitionOutput, Polled, Position, TransportRefused, TransportStatus, TransportUnavailable
from resequencer.record import Headers, Origin, Partition, Record

TABLES = """
CREATE TABLE IF NOT EXISTS input (
    partition INTEGER, "offset" INTEGER, key BLOB, headers BLOB, value BLOB, PRIMARY KEY (partition, "offset"));
CREATE TABLE IF NOT EXISTS output (
    place INTEGER PRIMARY KEY, partition INTEGER, number INTEGER, channel TEXT, key BLOB, headers BLOB, value BLOB,
    UNIQUE (partition, number));
CREATE TABLE IF NOT EXISTS position (partition INTEGER PRIMARY KEY, "offset" INTEGER, metadata TEXT);
"""
NEXT = 'SELECT "offset", key, headers, value FROM input WHERE partition = ? AND "offset" >= ? ORDER BY "offset" LIMIT ?'
STEP_MS = 10
_encode_headers = msgspec.msgpack.Encoder().encode
_decode_headers = msgspec.msgpack.Decoder(Headers).decode


class TableTransport:
    """All partitions from 0 on are ours: the run directory's lock sees to it that no other process works on them."""

    def __init__(self, file: Path, topic: str, partitions: int, wait: Callable[[int, Event], object]) -> None:
        self._file = file
        self._ours = tuple(Partition(topic, number) for number in range(partitions))
        self._wait = wait
        self._woken = Event()
        self._read_to: dict[Partition, int] = {}
        file.parent.mkdir(parents=True, exist_ok=True)
        with _translated(file):
            self._database = sqlite3.connect(file, isolation_level=None)
            self._database.executescript(f"PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; {TABLES}")

    def standing(self) -> TransportStatus:
        return TransportStatus()

    def assignment(self) -> Collection[Partition]:
        return self._ours

    def position(self, partition: Partition) -> Position | None:
        found = self._rows('SELECT "offset", metadata FROM position WHERE partition = ?', partition.number)
        return Position(*found[0]) if found else None

    def source(self, partition: Partition) -> str:
        del partition
        return ""  # A table is never created again.

    def start_offset(self, partition: Partition) -> int:
        del partition
        return 0

    def end_offset(self, partition: Partition) -> int:
        ((end,),) = self._rows('SELECT COALESCE(MAX("offset") + 1, 0) FROM input WHERE partition = ?', partition.number)
        return int(end)

    def seek(self, partition: Partition, offset: int, source_state: str = "") -> None:
        del source_state  # Nothing is remembered beside the offset.
        end = self.end_offset(partition)
        if offset > end:
            raise TransportRefused(
                str(partition), f"position {offset} lies beyond its end, {end}; restore the table, or set it back"
            )
        self._read_to[partition] = offset

    def poll(self, max_records: int, timeout_ms: int, resting: Collection[Partition] = ()) -> Polled:
        sought = [each for each in self._read_to if each not in resting]
        for _ in range(max(1, timeout_ms // STEP_MS)):
            ends = {each: self.end_offset(each) for each in self._ours}
            records = tuple(self._records(sought, max_records))
            if records or not max_records or self._woken.is_set():
                break
            self._wait(STEP_MS, self._woken)
        if timeout_ms > 0:
            self._woken.clear()
        moved = {each.origin.partition: each.origin.offset + 1 for each in records}
        for each, next_offset in moved.items():
            del self._read_to[each]  # To the end: the next poll begins with the others.
            self._read_to[each] = next_offset
        return Polled(records, moved, ends, ends)

    def wake(self) -> None:
        self._woken.set()

    def _records(self, sought: Sequence[Partition], room: int) -> Iterator[Record]:
        for each in sought:
            for offset, key, headers, value in self._rows(NEXT, each.number, self._read_to[each], room):
                room -= 1
                yield Record(Origin(each, offset), value, key, _decode_headers(headers))

    def publish(self, outputs: Sequence[PartitionOutput]) -> None:
        with _translated(self._file), self._transaction() as database:
            for output in outputs:
                number, position = output.partition.number, output.position
                database.executemany(
                    "INSERT OR IGNORE INTO output (partition, number, channel, key, headers, value) VALUES (?, ?, ?, ?, ?, ?)",
                    [(number, r.number, r.channel.value, r.key, _encode_headers(r.headers), r.value) for r in output.records],
                )
                database.execute("REPLACE INTO position VALUES (?, ?, ?)", (number, position.offset, position.metadata))

    def close(self) -> None:
        self._database.close()

    def _rows(self, query: str, *values: int) -> list[tuple[Any, ...]]:
        with _translated(self._file):
            return self._database.execute(query, values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield self._database
            self._database.execute("COMMIT")
        except BaseException:
            self._database.execute("ROLLBACK")
            raise


@contextmanager
def _translated(file: Path) -> Iterator[None]:
    """The one place where this transport's errors become those of the port."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise TransportUnavailable(f"{file}: {error}") from error
    except sqlite3.DatabaseError as error:
        raise TransportRefused(str(file), f"cannot be used ({error}); restore it from a copy") from error
