"""Storage `infinispan`: a cache that an older version wrote, with wall-clock instants and one watermark for all partitions.

`format_1.json` is what that version left of two partitions, and what it told of them. Its retention was four hours.
Three units changed at 0:59: it had forgotten them, but still held them, when it looked for the last time at 5:00. The others
changed at 2:00, 4:00 and 5:00.
"""

import json
from base64 import b64decode
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from storage.infinispan.port import Cache
from storage.infinispan.rest_client import InfinispanRest
from storage.infinispan.settings import LayoutSettings, ServerSettings
from storage.infinispan.storage import InfinispanStorage
from storage.port import Pending, Snapshot, StashEntry, StorageRefused, UnitChange
from tests.storage.contract import OTHER, PARTITION, expire_all, idle, put
from tests.storage.infinispan.memory import MemoryCache, MemoryServer
from tests.storage.infinispan.storages import SMALL

HOUR_MS = 3_600_000
RETENTION_MS = 4 * HOUR_MS
BEGIN = 1_700_000_000_000
LAST_LOOK = BEGIN + 5 * HOUR_MS
KEY = "bank::forgotten-until"
LEFT = json.loads(Path(__file__).with_name("format_1.json").read_text(encoding="utf-8"))
REMEMBERED = {
    int(number): {
        unit: Snapshot(unit, state.encode(), data.encode(), tuple(StashEntry(at, body.encode()) for at, body in stash))
        for unit, (state, data, stash) in units.items()
    }
    for number, units in LEFT["remembered"].items()
}
HIDDEN = [f"hidden-{number}" for number in range(3)]
UNITS = [*REMEMBERED[0], *REMEMBERED[1], *HIDDEN]
WAITING = {"waits-1", "waits-2"}

Open = Callable[..., InfinispanStorage]


@pytest.fixture
def server() -> MemoryServer:
    left = MemoryServer()
    left.values = {key: b64decode(body) for key, body in LEFT["values"].items()}
    left.counters = dict(LEFT["counters"])
    return left


@pytest.fixture
def make(server: MemoryServer) -> Open:
    """Make a storage as another process would each time."""
    return lambda: storage_on(MemoryCache(server))


def storage_on(cache: Cache) -> InfinispanStorage:
    tokens = iter(range(10**6))
    return InfinispanStorage(LayoutSettings("bank", RETENTION_MS, **SMALL), cache, lambda: f"{id(tokens)}-{next(tokens)}")


def test_all_that_was_remembered_is_there_and_nothing_else(make):
    storage = make()
    store = storage.open(PARTITION)
    assert store.load(UNITS) == REMEMBERED[0]
    assert {unit for unit, _ in store.waiting()} == WAITING
    assert store.pending() == [Pending(1, b"leaves")]
    assert (store.header.next_offset, store.header.highest_number, store.header.source) == (44, 1, "the log")
    assert storage.open(OTHER).load(UNITS) == REMEMBERED[1]


def test_the_clock_begins_when_the_older_version_looked_for_the_last_time(make):
    storage = make()
    assert [storage.open(partition).header.caught_up_ms for partition in (PARTITION, OTHER)] == [LAST_LOOK] * 2


def test_nothing_is_forgotten_at_once(make):
    storage = make()
    for partition in (PARTITION, OTHER):
        store = storage.open(partition)
        expire_all(store, store.header.caught_up_ms - RETENTION_MS)
        assert store.load(UNITS) == REMEMBERED[partition.number]
        assert make().open(partition).load(UNITS) == REMEMBERED[partition.number]


def test_everything_goes_a_retention_after_its_last_change(make, server):
    store = make().open(PARTITION)
    expire_all(store, BEGIN + 4 * HOUR_MS)
    assert store.load(UNITS).keys() == {"kept-0-0", "kept-1-0", "waits-0", *WAITING}
    expire_all(store, LAST_LOOK)
    assert store.load(UNITS).keys() == WAITING
    for _ in range(20):
        put(store)
    assert len([key for key in server.values if ":0:" in key]) < 8


def test_changes_go_on_from_what_was_remembered_and_begin_anew_where_it_was_forgotten(make):
    store = make().open(PARTITION)
    changed = ["kept-0-0", "kept-2-2", "waits-0", "waits-2", *HIDDEN]
    put(store, *(UnitChange(unit, b"new") for unit in changed))
    for loaded in (store.load(changed), make().open(PARTITION).load(changed)):
        data = {unit: snapshot.payment_data for unit, snapshot in loaded.items()}
        assert data == {unit: None if unit in HIDDEN else b"payment data of " + unit.encode() for unit in changed}
        assert len(loaded["waits-2"].stash) == 1


def test_the_clock_begins_there_for_each_owner_until_one_has_committed(make, server):
    assert make().open(PARTITION).header.caught_up_ms == LAST_LOOK
    store = make().open(PARTITION)
    put(store, idle("a"), caught_up_ms=LAST_LOOK + 7)
    server.values[KEY] = b"%d" % (LAST_LOOK + 10**9)
    taken = make().open(PARTITION)
    assert taken.header.caught_up_ms == LAST_LOOK + 7
    assert taken.load(UNITS) == REMEMBERED[0]


def test_without_the_expiry_watermark_the_clock_begins_at_the_last_change(make, server):
    del server.values[KEY]
    storage = make()
    assert storage.open(PARTITION).header.caught_up_ms == BEGIN + 5 * HOUR_MS
    assert storage.open(OTHER).header.caught_up_ms == BEGIN + 4 * HOUR_MS
    assert storage.open(OTHER).load(UNITS) == REMEMBERED[1]


def test_an_expiry_watermark_that_is_no_instant_is_refused_with_the_remedy(make, server):
    server.values[KEY] = b"yesterday"
    with pytest.raises(StorageRefused, match=f"{KEY}: is not an instant; delete it"):
        make().open(PARTITION)


def test_what_is_lost_is_noticed(make, server):
    for key in [key for key in server.values if ":l:" in key]:
        del server.values[key]
    assert make().open(PARTITION).header.is_empty
    store = make().open(PARTITION)
    put(store, idle("a"))
    assert make().open(PARTITION).load(["a"]).keys() == {"a"}


def test_what_is_written_now_says_that_an_older_version_cannot_read_it(make, server):
    before = set(server.values)
    put(make().open(PARTITION), idle("a"))
    assert {server.values[key][4] for key in before & server.values.keys() - {KEY}} == {1}
    assert {server.values[key][4] for key in server.values.keys() - before} == {2}


@pytest.mark.slow
def test_the_same_on_a_real_server(infinispan, fresh_name):
    name = fresh_name("format-1")
    infinispan.create_cache(name, {"local-cache": {"encoding": {"media-type": "application/octet-stream"}}})
    with closing(InfinispanRest(ServerSettings(infinispan.url, name, timeout_ms=60_000))) as cache:
        for key, body in LEFT["values"].items():
            cache.put(key, b64decode(body))
        for counter, value in LEFT["counters"].items():
            cache.create_counter(counter)
            assert cache.compare_and_set(counter, 0, value)
        storage = storage_on(cache)
        store = storage.open(PARTITION)
        assert store.header.caught_up_ms == LAST_LOOK
        expire_all(store, LAST_LOOK - RETENTION_MS)
        assert store.load(UNITS) == REMEMBERED[0]
        expire_all(store, LAST_LOOK)
        assert storage.open(PARTITION).load(UNITS).keys() == WAITING
        assert storage.open(OTHER).load(UNITS) == REMEMBERED[1]
