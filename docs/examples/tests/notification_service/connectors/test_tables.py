"""Transport `tables`: the contract on a real database."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from harness.waiting import wait_ms

from guardian.ports import Channel
from notification_service.connectors.line_format import Line
from notification_service.connectors.tables import TableTransport
from resequencer.record import Headers, Partition
from tests.notification_service.connectors.contract import TransportContract


class TableHarness:
    partitions = (Partition("T", 0), Partition("T", 1))

    def __init__(self, file: Path) -> None:
        self._file = file

    def make(self) -> TableTransport:
        return TableTransport(self._file, "T", 2, wait_ms)

    def send(self, partition: Partition, *values: bytes) -> None:
        self.make().close()  # So that the tables are there.
        with closing(sqlite3.connect(self._file)) as database, database:
            for value in values:
                database.execute(
                    'INSERT INTO input SELECT ?, COALESCE(MAX("offset") + 1, 0), ?, ?, ? FROM input WHERE partition = ?',
                    (partition.number, b"unit", msgspec.msgpack.encode(()), value, partition.number),
                )

    def left(self, channel: Channel) -> Sequence[Line]:
        with closing(sqlite3.connect(self._file)) as database:
            found = database.execute("SELECT value, key, headers FROM output WHERE channel = ? ORDER BY place", (channel.value,))
            return [Line(value, key, msgspec.msgpack.decode(headers, type=Headers)) for value, key, headers in found]


class TestTableContract(TransportContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> TableHarness:
        return TableHarness(tmp_path / "records.db")
