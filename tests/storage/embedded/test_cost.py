"""The cost of the embedded storage depends on the units that change or wait, and not on the number of idle units."""

from contextlib import contextmanager

import pytest

from resequencer.storage_port import Pending, StashEntry, UnitChange
from tests.storage.contract import PARTITION, WAITS, following, idle, put, waiting

IDLE = 200_000

MAKE_IDLE_UNITS = """
WITH RECURSIVE numbers (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < ?)
INSERT INTO units (partition, unit, changed_at, state) SELECT 1, CAST('idle-' || number AS BLOB), 1000000, x'00' FROM numbers
"""


@contextmanager
def counted(storage, spent):
    """Counts the steps of SQLite's virtual machine, which are the same in each run and on each machine."""
    steps = 0

    def step():
        nonlocal steps
        steps += 1
        return 0

    connection = storage._database._connection
    connection.set_progress_handler(step, 1)
    try:
        yield
    finally:
        connection.set_progress_handler(None, 1)
        spent.append(steps)


def costs(storage, store, name):
    """The steps of a load, a commit, a list of waiting units, and an expiry of three units."""
    spent = []
    changes = [UnitChange(f"{name}-{number}", b"s", WAITS, (StashEntry(1, b"x"),), (), b"d") for number in range(50)]
    first = following(store, *changes, added=(Pending(1, b"one"),), highest_number=1)
    with counted(storage, spent):
        store.load([change.unit for change in changes])
    with counted(storage, spent):
        store.commit(first)
    with counted(storage, spent):
        assert len(store.waiting()) == 50
    put(store, *(idle(f"{name}-{number}") for number in range(3)), published=1)
    with counted(storage, spent):
        assert store.expire(0, ()) == 3
    put(store, *(idle(change.unit) for change in changes[3:]))
    assert store.expire(0, ()) == 47
    return spent


@pytest.mark.slow
def test_nothing_costs_more_beside_200_000_idle_units(embedded):
    storage = embedded.make()
    store = storage.open(PARTITION)
    costs(storage, store, "warm")
    alone = costs(storage, store, "alone")
    with storage._database.writing() as connection:
        connection.execute(MAKE_IDLE_UNITS, (IDLE,))
    crowded = costs(storage, store, "crowded")
    # Page splits of the B-trees cause a few more or fewer steps.
    assert crowded == pytest.approx(alone, rel=0.02)


def test_the_hundredth_stashed_envelope_costs_what_the_second_cost(embedded):
    storage = embedded.make()
    store = storage.open(PARTITION)
    put(store, waiting("a"))
    spent = []
    for offset in range(100):
        commit = following(store, UnitChange("a", b"s", WAITS, (StashEntry(offset, b"x" * 1_000),)))
        with counted(storage, spent):
            store.commit(commit)
    assert spent[99] == pytest.approx(spent[1], rel=0.02)


def test_payment_data_that_did_not_change_is_not_written_again(embedded):
    storage = embedded.make()
    store = storage.open(PARTITION)
    put(store, UnitChange("a", b"s", data=b"x" * 5_000_000))
    storage._database._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    put(store, idle("a"))
    assert embedded.file.with_name("state.db-wal").stat().st_size < 100_000
