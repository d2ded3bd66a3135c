"""The view of the embedded storage, by read-only connections."""

import sqlite3
from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from domain.record import Partition
from storage.embedded.change_log import find_changed_units
from storage.embedded.partition import WAITS_COLUMNS, find_partition, find_snapshot, waits_of
from storage.embedded.read_only import reading
from storage.marker import count_commits_since, marker_of
from storage.port import Header
from storage.view_port import UnitView, WaitingChanges, WaitingPortion, is_worth_it, whole_of_nothing

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
        with self._reading() as connection:
            found = None if connection is None else find_partition(connection, partition)
            return None if found is None else found[1]

    def find_unit(self, partition: Partition, unit: str) -> UnitView | None:
        with self._reading() as connection:
            if connection is None or (found := find_partition(connection, partition)) is None:
                return None
            key, _ = found
            snapshot = find_snapshot(connection, key, unit)
            waits = connection.execute(_WAITS, (key, unit.encode())).fetchone()
            return None if snapshot is None else UnitView(snapshot, None if waits is None else waits_of(*waits))

    def find_waiting(self, partition: Partition, marker: str | None) -> WaitingChanges | None:
        with ExitStack() as stack:
            connection = stack.enter_context(self._reading())
            found = None if connection is None else find_partition(connection, partition)
            if connection is None or found is None:
                return whole_of_nothing() if marker else None
            key, header = found
            if marker == marker_of(header):
                return None
            changed = _find_changed(connection, key, header, marker)
            if changed is not None:
                connection.execute("COMMIT")
                return WaitingChanges(marker_of(header), False, _changes(connection, key, changed, stack.pop_all()))
            (ids,) = connection.execute(_WAITING_IDS, (key,)).fetchone()
            connection.execute("COMMIT")
            return WaitingChanges(marker_of(header), True, _portions(connection, key, ids or "", stack.pop_all()))

    def close(self) -> None:
        """Do nothing: no connection outlives its call."""

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        """Begin a read transaction. Closing the connection ends it."""
        with reading(self._file) as connection:
            if connection is not None:
                connection.execute("BEGIN")
            yield connection


def _find_changed(connection: sqlite3.Connection, key: int, header: Header, marker: str | None) -> Sequence[str] | None:
    """Return the units that changed since the marker, None if the whole is to be listed."""
    commits = count_commits_since(header, marker)
    if commits is None:
        return None
    units = find_changed_units(connection, key, marker_of(header), commits)
    if units is not None and len(units) > _PORTION_UNITS:
        (waiting,) = connection.execute(_COUNT_WAITING, (key,)).fetchone()
        return units if is_worth_it(len(units), waiting) else None
    return units


def _changes(
    connection: sqlite3.Connection, key: int, units: Sequence[str], closed_at_end: ExitStack
) -> Iterator[WaitingPortion]:
    """Read the waits of these units as they are now, with a transaction for each portion."""
    with closed_at_end:
        for begin in range(0, len(units), _PORTION_UNITS):
            wanted = units[begin : begin + _PORTION_UNITS]
            sql = f"{_NAMED_UNITS} ({','.join('?' * len(wanted))})"
            found = {
                row[0].decode(): waits_of(*row[1:]) for row in connection.execute(sql, (key, *(each.encode() for each in wanted)))
            }
            yield [(unit, found.get(unit)) for unit in wanted]


def _portions(connection: sqlite3.Connection, key: int, ids: str, closed_at_end: ExitStack) -> Iterator[WaitingPortion]:
    """Read the units with these ids, those that wait still, with a transaction for each portion.

    The index itself is not paged through: a unit whose instant moves from a later page to an earlier one would not be listed.
    """
    with closed_at_end:
        # In the order of the table, so that each of its pages is read once.
        in_order = array("q", sorted(map(int, ids.split(",") if ids else ())))
        for begin in range(0, len(in_order), _PORTION_UNITS):
            wanted = in_order[begin : begin + _PORTION_UNITS]
            rows = connection.execute(f"{_WAITING_UNITS} ({','.join('?' * len(wanted))})", (key, *wanted))
            yield [(unit.decode(), waits_of(*waits)) for unit, *waits in rows.fetchall()]
