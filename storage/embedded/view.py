"""The view of the embedded storage, by read-only connections."""

import sqlite3
from array import array
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from domain.record import Partition
from storage.embedded.partition import WAITS_COLUMNS, find_partition, find_snapshot, waits_of
from storage.embedded.read_only import reading
from storage.embedded.schema import is_old
from storage.marker import marker_of
from storage.port import Header, StorageRefused
from storage.view_port import UnitView, WaitingChanges, WaitingPortion, whole_of_nothing

_PORTION_UNITS = 2_000

_WAITS = f"SELECT {WAITS_COLUMNS} FROM units WHERE partition = ? AND unit = ? AND wakes_at IS NOT NULL"  # noqa: S608
# As one text, because fetching a million rows takes four times as long, and a checkpoint waits for the end of the transaction.
_WAITING_IDS = "SELECT group_concat(id) FROM units INDEXED BY waiting WHERE partition = ? AND wakes_at IS NOT NULL"
_WAITING_UNITS = f"SELECT unit, {WAITS_COLUMNS} FROM units NOT INDEXED WHERE partition = ? AND wakes_at IS NOT NULL AND id IN"  # noqa: S608


class EmbeddedStorageView:
    """Opens the file for each call and closes it again. So a worker that ends meanwhile can still clear its log away.

    A read transaction takes 0.1 s with a million waiting units, and less with fewer. The waiting units are always listed whole.
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
                if is_old(connection):
                    raise StorageRefused(str(self._file), "its format is older; the next start of the service upgrades it")
                connection.execute("BEGIN")
            yield connection


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
