"""Storage `infinispan`: a cache that lost some entries, and how entries are found. A partition never comes back in part."""

from collections.abc import Callable
from contextlib import suppress

import pytest

from resequencer.errors import OwnershipLost
from resequencer.storage_port import Pending, StorageUnavailable, UnitChange
from storage.infinispan.partition import InfinispanPartitionStore
from storage.infinispan.partition_state import everything
from tests.storage.contract import PARTITION, expire_all, following, idle, put, waiting
from tests.storage.infinispan.memory import MemoryCache, MemoryServer
from tests.storage.infinispan.storages import RETENTION_MS, SMALL, InfinispanHarness

UNITS = [f"unit-{number}" for number in range(20)]


@pytest.fixture
def server() -> MemoryServer:
    return MemoryServer()


@pytest.fixture
def harness(server: MemoryServer) -> InfinispanHarness:
    return InfinispanHarness(lambda: MemoryCache(server), **SMALL)


def filled(harness: InfinispanHarness) -> InfinispanPartitionStore:
    """A partition with segments, blocks and pages, a waiting unit, and pending output."""
    store = harness.make().open(PARTITION)
    for number, unit in enumerate(UNITS):
        added = (Pending(number + 1, b"blocks"),)
        put(store, idle(unit), waiting(f"waiting-{number}"), added=added, published=number, highest_number=number + 1)
    store._end_of_clearing()
    return store


def lost(act: Callable[[], object]) -> bool:
    try:
        act()
    except OwnershipLost:
        return True
    return False


def assert_forgotten(harness: InfinispanHarness) -> InfinispanPartitionStore:
    store = harness.make().open(PARTITION)
    assert store.header.is_empty
    assert (store.load(UNITS), store.waiting(), store.pending()) == ({}, [], [])
    return store


def keys(server: MemoryServer, kind: str) -> list[str]:
    return sorted(key for key in server.values if f":{kind}:" in key)


@pytest.mark.parametrize("kind", ["s", "l"])
def test_whatever_an_opener_misses_the_partition_is_forgotten_as_a_whole(harness, server, kind):
    before = dict(server.values)
    for position in range(2):
        store = filled(harness)
        del server.values[keys(server, kind)[-position]]
        assert_forgotten(harness)
        assert lost(lambda store=store: put(store))
        server.values.clear()
        server.values |= before
        server.counters.clear()


def test_a_page_that_is_lost_is_noticed_when_it_is_read_and_then_nothing_is_left(harness, server):
    filled(harness)
    store = harness.make().open(PARTITION)
    for key in keys(server, "p"):
        del server.values[key]
    with pytest.raises(OwnershipLost, match="is lost; the partition must be taken over again"):
        store.load(UNITS)
    assert_forgotten(harness)


def test_what_is_forgotten_keeps_the_numbers_that_were_given_out_but_no_history(harness, server):
    store = filled(harness)
    put(store, highest_number=77, heal_offset=5, source="the log")
    del server.values[keys(server, "l")[0]]
    header = assert_forgotten(harness).header
    assert (header.highest_number, header.heal_offset, header.source) == (77, 5, "the log")
    assert store.header.token not in dict(header.history)


def test_a_counter_that_is_lost_means_that_all_is_forgotten(harness, server):
    store = filled(harness)
    server.counters.clear()
    assert lost(lambda: put(store))
    assert lost(lambda: store.load(UNITS))
    assert assert_forgotten(harness).header.history == ()


def test_a_counter_that_was_set_back_meets_what_was_there_or_nothing(harness, server):
    store = filled(harness)
    (name,) = server.counters
    at = server.counters[name]
    put(store, idle("later"))
    server.counters[name] = at
    taken = harness.make().open(PARTITION)
    assert taken.header.is_empty or (dict(taken.header.history)[store.header.token] == 20 and not taken.load(["later"]))


def test_an_empty_cache_beside_its_counters_is_a_memory_that_restarted(harness, server):
    store = filled(harness)
    server.values.clear()
    put(store, idle("a"))
    assert_forgotten(harness)


def test_an_owner_whose_cache_restarted_goes_on_until_it_misses_something(harness, server):
    store = filled(harness)
    server.values.clear()
    harness.made[-1]._memory.__init__(0)
    put(store, idle("a"))
    assert lost(lambda: store.load(UNITS))
    assert_forgotten(harness)


def test_nothing_of_what_was_forgotten_stays_in_the_cache(harness, server):
    filled(harness)
    del server.values[keys(server, "l")[0]]
    store = assert_forgotten(harness)
    for _ in range(40):
        put(store)
    store._end_of_clearing()
    prefix = f"{store._link.name}:"
    assert set(server.values) == {prefix + name for name in everything(store._contents.as_root())}


def test_an_asynchronous_cache_is_given_time_to_show_what_was_written(harness, server, monkeypatch):
    filled(harness)
    monkeypatch.setattr(MemoryCache, "may_lag", True)
    late = keys(server, "l")[0]
    value = server.values.pop(late)
    storage = harness.make()
    for _ in range(3):
        with pytest.raises(StorageUnavailable, match="not there yet, or lost"):
            storage.open(PARTITION)
    server.values[late] = value
    assert len(storage.open(PARTITION).waiting()) == len(UNITS)


def test_what_an_asynchronous_cache_never_shows_is_lost(harness, server, monkeypatch):
    filled(harness)
    monkeypatch.setattr(MemoryCache, "may_lag", True)
    del server.values[keys(server, "l")[0]]
    storage = harness.make()
    for _ in range(10):
        with suppress(StorageUnavailable):
            assert storage.open(PARTITION).header.is_empty
            return
    raise AssertionError("it is waited for, for ever")


def test_of_a_unit_whose_first_change_grew_old_nothing_is_missing(harness):
    """The unit's change is in the window. The data on which it builds is in a page that is older than the watermark."""
    store = harness.make(window_segments=4).open(PARTITION)
    put(store, UnitChange("a", b"", data=b"data"))
    for unit in "bc":
        put(store, idle(unit))
    put(store, idle("a"), caught_up_ms=100)
    for unit in "def":
        put(store, idle(unit), caught_up_ms=100)
        expire_all(store, 50)
    assert store._contents.page_table.head > 0
    assert store._contents.window.find_last("a").data is None
    assert harness.make().open(PARTITION).load(["a"])["a"].data == b"data"


def test_what_is_forgotten_as_a_whole_keeps_its_clock(harness, server):
    put(filled(harness), caught_up_ms=77)
    del server.values[keys(server, "l")[0]]
    assert assert_forgotten(harness).header.caught_up_ms == 77


# Requests.


def test_a_commit_is_one_value_and_one_compare_and_set(server):
    store = InfinispanHarness(lambda: MemoryCache(server)).make().open(PARTITION)
    put(store, idle("a"))
    server.log.clear()
    put(store, *(idle(f"unit-{number}") for number in range(500)))
    assert [act for act, _ in server.log] == ["put", "compare_and_set"]


def test_units_that_do_not_exist_cost_one_request_however_many_lie_idle(harness, server):
    store = filled(harness)
    server.log.clear()
    store.load([f"unknown-{number}" for number in range(50)])
    assert [act for act, _ in server.log] == ["find_counter"]


def test_units_of_the_last_commits_are_loaded_without_reading_pages(server):
    store = InfinispanHarness(lambda: MemoryCache(server)).make().open(PARTITION)
    put(store, *(idle(f"unit-{number}") for number in range(500)))
    server.log.clear()
    assert len(store.load([f"unit-{number}" for number in range(500)])) == 500
    assert [act for act, _ in server.log] == ["find_counter"]


def test_a_compaction_moves_about_as_much_as_a_commit_brings(server):
    """Even after a long run, a commit writes or deletes only a few values."""
    harness = InfinispanHarness(lambda: MemoryCache(server), **SMALL | {"few_units": 40})
    store, most = harness.make().open(PARTITION), 0
    for number in range(400):
        server.log.clear()
        put(store, *(idle(f"unit-{number}-{each}") for each in range(3)), caught_up_ms=number * 10)
        store.expire(number * 10 - RETENTION_MS, ())
        most = max(most, len(server.log))
    assert most <= 40
    assert store._contents.page_table.head > 300
    assert len(server.values) < 150


def test_a_commit_cannot_be_decided_anew_while_it_may_still_count(harness):
    store = filled(harness)
    cache = store._link._cache
    move, cache.compare_and_set = cache.compare_and_set, lambda *_: (_ for _ in ()).throw(StorageUnavailable("no answer"))
    first = following(store, idle("first"))
    with pytest.raises(StorageUnavailable):
        store.commit(first)
    cache.compare_and_set = move
    with pytest.raises(OwnershipLost, match="was tried with another attempt"):
        put(store, idle("second"))
    store.commit(first)
    assert store.load(["first", "second"]).keys() == {"first"}


def test_a_token_of_an_earlier_owner_is_not_taken_again(harness):
    tokens = iter(["a", "a", "a", "b", "a", "b", "c"])
    opened = []
    for _ in range(3):
        storage = harness.make()
        storage._random_token = lambda: next(tokens)
        opened.append(storage.open(PARTITION).header.token)
    assert len(set(opened)) == 3
    assert list(tokens) == []
