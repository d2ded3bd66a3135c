"""Under a steady load, database and log keep their size; space that an unusual load took is given back."""

import pytest

from resequencer.storage_port import Pending, StashEntry, UnitChange
from tests.storage.contract import PARTITION, WAITS, put

UNITS = 40
RETENTION = 10
RUN = 3
"""The number of commits of a unit: stashed, handled with its data, handled."""


class Load:
    """Units that come, wait, are handled and expire. The clock counts commits; the retention is ten commits."""

    def __init__(self, embedded):
        self.file = embedded.file
        self.storage = embedded.make()
        self.store = self.storage.open(PARTITION)
        self.tick = 0
        self.number = 0
        self.born = {0: 0, -1: 0}

    def run(self, ticks, units=UNITS):
        for _ in range(ticks):
            self.tick += 1
            self.born[self.tick] = units
            pending = tuple(Pending(self.number + each, b"n" * 900) for each in range(1, units + 1))
            published, self.number = self.number, self.number + units
            changes = [change for age in range(RUN) for change in self._changes(age)]
            put(self.store, *changes, added=pending, highest_number=self.number, published=published, caught_up_ms=self.tick)
            self.store.expire(self.tick - RETENTION, ())

    @property
    def pages(self):
        return self.storage._database._connection.execute("PRAGMA page_count").fetchone()[0]

    @property
    def log_bytes(self):
        return self.file.with_name("state.db-wal").stat().st_size

    def _changes(self, age):
        names = [f"{self.tick - age}-{each}" for each in range(self.born[self.tick - age])]
        if age == 0:
            return [UnitChange(name, b"s" * 200, WAITS, (StashEntry(1, b"x" * 1_000),)) for name in names]
        removed = (1,) if age == 1 else ()
        return [UnitChange(name, b"s" * 200, None, (), removed, b"d" * 2_000 if age == 1 else None) for name in names]


def test_a_steady_load_leaves_database_and_log_as_large_as_they_are(embedded):
    load = Load(embedded)
    load.run(40)
    settled = load.pages
    load.run(80)
    assert load.pages <= settled * 1.1
    # SQLite copies the log into the database at 4 000 pages; one more commit may be added.
    assert load.log_bytes < 18_000_000


@pytest.mark.slow
def test_what_a_burst_took_is_given_back_to_the_file_system(embedded):
    load = Load(embedded)
    load.run(30)
    settled = load.pages
    load.run(3, units=25 * UNITS)
    assert load.pages > 3 * settled
    load.run(30)
    # Up to a quarter of it may be free.
    assert load.pages <= settled * 1.5
