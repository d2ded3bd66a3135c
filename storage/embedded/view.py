"""The view of the embedded storage, by read-only connections."""

import sqlite3
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from msgspec.structs import replace

from resequencer.record import Partition
from resequencer.storage_port import Header, StorageRefused
from storage.embedded.change_log import find_changed_units
from storage.embedded.commit_log import log_of, read_log
from storage.embedded.database import check_format
from storage.embedded.errors import RESTORE, translated
from storage.embedded.partition import WAITS_COLUMNS, find_header, find_key, find_snapshot, waits_of
from storage.embedded.tail import Tail, find_tail
from storage.view_port import (
    UnitView,
    WaitingChanges,
    WaitingPortion,
    count_commits_since,
    is_worth_it,
    marker_of,
    whole_of_nothing,
)

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


_PORTION_UNITS = 2_000

_WAITS = f"SELECT {WAITS_COLUMNS} FROM units WHERE partition = ? AND unit = ? AND wakes_at IS NOT NULL"  # noqa: S608
# As one text, because fetching a million rows takes four times as long, and a checkpoint waits for the end of the transaction.
_WAITING_IDS = "SELECT group_concat(id) FROM units INDEXED BY waiting WHERE partition = ? AND wakes_at IS NOT NULL"
_WAITING_UNITS = f"SELECT unit, {WAITS_COLUMNS} FROM units NOT INDEXED WHERE partition = ? AND wakes_at IS NOT NULL AND id IN"  # noqa: S608
# The sign keeps SQLite from going through the index of waiting units.
_NAMED_UNITS = f"SELECT unit, {WAITS_COLUMNS} FROM units WHERE partition = ? AND +wakes_at IS NOT NULL AND unit IN"  # noqa: S608
_COUNT_WAITING = "SELECT count(*) FROM units INDEXED BY waiting WHERE partition = ? AND wakes_at IS NOT NULL"


class EmbeddedStorageView:
    """Opens the file for each call and closes it again. So a worker that ends meanwhile can still clear its log away.

    A read transaction takes 0.1 s with a million waiting units, and less with fewer. What changed since a marker is read by the
    log of changes. The whole is listed where the log does not reach back, and where that is less to read.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def find_header(self, partition: Partition) -> Header | None:
        with committed(self._file, partition) as found:
            return None if found is None else found.tail.header

    def find_unit(self, partition: Partition, unit: str) -> UnitView | None:
        with committed(self._file, partition) as found:
            if found is None:
                return None
            connection, key, tail = found
            stored = find_snapshot(connection, key, unit)
            if (changed := tail.units.get(unit)) is not None:
                return UnitView(changed.over(unit, stored), changed.waits)
            waits = connection.execute(_WAITS, (key, unit.encode())).fetchone()
            return None if stored is None else UnitView(stored, None if waits is None else waits_of(*waits))

    def find_waiting(self, partition: Partition, marker: str | None) -> WaitingChanges | None:
        with ExitStack() as stack:
            found = stack.enter_context(committed(self._file, partition))
            if found is None:
                return whole_of_nothing() if marker else None
            connection, key, tail = found
            latest = marker_of(tail.header)
            if marker == latest:
                return None
            changed = _find_changed(connection, key, tail, marker)
            if changed is not None:
                connection.execute("COMMIT")
                return WaitingChanges(latest, False, _changes(connection, key, changed, tail, stack.pop_all()))
            (ids,) = connection.execute(_WAITING_IDS, (key,)).fetchone()
            connection.execute("COMMIT")
            return WaitingChanges(latest, True, _portions(connection, key, ids or "", tail, stack.pop_all()))

    def close(self) -> None:
        """Do nothing: no connection outlives its call."""


def _find_changed(connection: sqlite3.Connection, key: int, tail: Tail, marker: str | None) -> Sequence[str] | None:
    """Return the units that changed since the marker, None if the whole is to be listed."""
    commits = count_commits_since(tail.header, marker)
    if commits is None:
        return None
    units = dict.fromkeys(unit for _, each in tail.commits[-commits:] for unit in each)
    if commits > len(tail.commits):
        stored = replace(tail.header, commit=tail.header.commit - len(tail.commits))
        earlier = find_changed_units(connection, key, marker_of(stored), commits - len(tail.commits))
        if earlier is None:
            return None
        units |= dict.fromkeys(earlier)
    if len(units) > _PORTION_UNITS:
        (waiting,) = connection.execute(_COUNT_WAITING, (key,)).fetchone()
        waiting += sum(each.waits is not None for each in tail.units.values())
        return list(units) if is_worth_it(len(units), waiting) else None
    return list(units)


def _changes(
    connection: sqlite3.Connection, key: int, units: Sequence[str], tail: Tail, closed_at_end: ExitStack
) -> Iterator[WaitingPortion]:
    """Read the waits of these units as they are now, with a transaction for each portion."""
    with closed_at_end:
        yield from _of_tail(tail, units)
        units = [unit for unit in units if unit not in tail.units]
        for begin in range(0, len(units), _PORTION_UNITS):
            wanted = units[begin : begin + _PORTION_UNITS]
            sql = f"{_NAMED_UNITS} ({','.join('?' * len(wanted))})"
            found = {
                row[0].decode(): waits_of(*row[1:]) for row in connection.execute(sql, (key, *(each.encode() for each in wanted)))
            }
            yield [(unit, found.get(unit)) for unit in wanted]


def _portions(
    connection: sqlite3.Connection, key: int, ids: str, tail: Tail, closed_at_end: ExitStack
) -> Iterator[WaitingPortion]:
    """Read the units with these ids, those that wait still, with a transaction for each portion, and those of the tail.

    The index itself is not paged through: a unit whose instant moves from a later page to an earlier one would not be listed.
    """
    with closed_at_end:
        # In the order of the table, so that each of its pages is read once.
        in_order = array("q", sorted(map(int, ids.split(",") if ids else ())))
        for begin in range(0, len(in_order), _PORTION_UNITS):
            wanted = in_order[begin : begin + _PORTION_UNITS]
            rows = connection.execute(f"{_WAITING_UNITS} ({','.join('?' * len(wanted))})", (key, *wanted))
            yield [(unit.decode(), waits_of(*waits)) for unit, *waits in rows.fetchall()]
        yield from _of_tail(tail, tail.units)


def _of_tail(tail: Tail, units: Iterable[str]) -> Iterator[WaitingPortion]:
    known = [(unit, tail.units[unit].waits) for unit in units if unit in tail.units]
    for begin in range(0, len(known), _PORTION_UNITS):
        yield known[begin : begin + _PORTION_UNITS]
