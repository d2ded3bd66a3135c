"""Storage `infinispan`: pages are deleted with their forgotten units, and no value that is still needed is deleted."""

import pytest

from resequencer.storage_port import Snapshot, StorageUnavailable, UnitChange
from storage.infinispan.partition import InfinispanPartitionStore
from tests.storage.contract import OTHER, PARTITION, expire_all, following, idle, put, waiting
from tests.storage.infinispan.memory import MemoryCache, MemoryServer
from tests.storage.infinispan.storages import RETENTION_MS, SMALL, InfinispanHarness


@pytest.fixture
def server() -> MemoryServer:
    return MemoryServer()


@pytest.fixture
def harness(server: MemoryServer) -> InfinispanHarness:
    return InfinispanHarness(lambda: MemoryCache(server), **SMALL | {"few_units": 10**6})


def pass_time(store: InfinispanPartitionStore, since: int, until: int, spared: tuple[str, ...] = ()) -> None:
    """Let other units come and expire for this span."""
    for now in range(since, until, 100):
        put(store, *(idle(f"other-{now}-{number}") for number in range(5)), caught_up_ms=now)
        store.expire(now - RETENTION_MS, spared)


def test_a_unit_in_memory_goes_on_from_what_was_found_however_old_it_becomes(harness):
    store = harness.make().open(PARTITION)
    put(store, UnitChange("a", b"", data=b"data"))
    pass_time(store, 0, 900)
    assert store.load(["a"])["a"].data == b"data"
    first = store._contents.page_table.tail
    pass_time(store, 900, 9_000, ("a",))
    assert store._contents.page_table.tail > first + 100
    put(store, UnitChange("a", b"2"), caught_up_ms=9_000)
    assert store.load(["a"]) == {"a": Snapshot("a", b"2", b"data", ())}


def test_who_takes_over_has_what_was_in_memory_until_it_is_asked_to_forget_it(harness):
    store = harness.make().open(PARTITION)
    put(store, UnitChange("a", b"", data=b"data"))
    pass_time(store, 0, 5_000, ("a",))
    taken = harness.make().open(PARTITION)
    assert taken.load(["a"])["a"].data == b"data"
    pass_time(taken, 5_000, 6_000)
    assert taken.load(["a"]) == {}


def test_a_segment_names_no_units_that_are_spared_unless_they_are_old(harness):
    store = harness.make().open(PARTITION)
    put(store, idle("a"), idle("b"), waiting("c"))
    store.expire(-RETENTION_MS, ("a", "b", "c"))
    assert put_and_read_watermark(store).spared == ()
    store.expire(0, ("a", "c"))
    assert put_and_read_watermark(store).spared == (("a", 0),)
    store.expire(0, ())
    assert put_and_read_watermark(store).spared == ()


def put_and_read_watermark(store):
    put(store)
    segment, _ = store._link.read_segment(store._contents.root.name)
    return segment.manifest.watermark


def test_a_unit_that_comes_while_a_commit_is_not_answered_is_not_forgotten_by_it(harness):
    """Today no load comes in between. If one comes, the unit is spared from the next commit on."""
    store = harness.make().open(PARTITION)
    put(store, UnitChange("a", b"", data=b"data"))
    store.expire(10, ())
    commit, cache = following(store, caught_up_ms=10), store._link._cache
    move, cache.compare_and_set = cache.compare_and_set, lambda *_: (_ for _ in ()).throw(StorageUnavailable("no answer"))
    with pytest.raises(StorageUnavailable):
        store.commit(commit)
    cache.compare_and_set = move
    assert store.load(["a"])["a"].data == b"data"
    store.commit(commit)
    put(store, UnitChange("a", b"2"), caught_up_ms=11)
    assert store.load(["a"]) == {"a": Snapshot("a", b"2", b"data", ())}


def test_a_longer_retention_brings_nothing_back(harness):
    store = harness.make().open(PARTITION)
    put(store, idle("a"))
    expire_all(store, 10)
    expire_all(store, -10)
    assert store.load(["a"]) == {}


def test_what_waits_moves_on_when_its_page_grows_old(harness):
    store = harness.make().open(PARTITION)
    put(store, waiting("a"))
    pass_time(store, 0, 5_000)
    assert store._contents.page_table.tail > 50
    taken = harness.make().open(PARTITION)
    assert [unit for unit, _ in taken.waiting()] == ["a"]
    assert taken.load(["a"])["a"].state == b"state of a"


def test_pages_in_which_all_is_forgotten_go_without_being_read(harness, server):
    store = harness.make().open(PARTITION)
    pass_time(store, 0, 4_000)
    server.log.clear()
    pass_time(store, 4_000, 8_000)
    assert [key for act, key in server.log if act == "get"] == []
    assert len([key for act, key in server.log if act == "delete" and ":p:" in key]) > 50


def test_a_quiet_partition_gives_back_what_was_forgotten_with_its_next_commits(harness, server):
    """Meanwhile the partition holds what its commits brought: nothing grows without commits."""
    store = harness.make().open(PARTITION)
    pass_time(store, 0, 4_000)
    held = len(server.values)
    for _ in range(1_000):
        store.expire(10_000, ())
    assert len(server.values) == held
    for _ in range(10):
        put(store, caught_up_ms=11_000)
    assert len(server.values) < 10
    assert held > 20


def test_forgetting_asks_for_the_owner_and_nothing_else(harness, server):
    storage = harness.make()
    stores = [storage.open(PARTITION), storage.open(OTHER)]
    put(stores[0], idle("a"))
    server.log.clear()
    for store in stores:
        store.expire(10, ())
    assert [act for act, _ in server.log] == ["find_counter"] * 2


def test_the_space_of_changed_units_is_taken_back(server):
    """A few units change all the time, and one never does: the cache holds about what they need."""
    harness = InfinispanHarness(lambda: MemoryCache(server), **SMALL)
    store = harness.make().open(PARTITION)
    put(store, idle("a"))
    for _ in range(300):
        put(store, *(idle(f"unit-{number}") for number in range(5)))
    assert store._contents.page_table.head > 150
    assert len(server.values) < 40
    assert store.load(["a"]).keys() == {"a"}


def test_the_window_keeps_its_bounds_though_small_changes_are_of_large_units(harness):
    """A unit is moved whole. More would come in than is moved if no more was moved than comes in."""
    store = harness.make().open(PARTITION)
    for number in range(50):
        put(store, UnitChange(f"unit-{number}", b"", data=b"x" * 3_000))
    longest = 0
    for number in range(400):
        put(store, *(UnitChange(f"unit-{(7 * number + each) % 50}", b"small") for each in range(4)))
        longest = max(longest, len(store._contents.window))
    assert longest < 2 * SMALL["window_segments"]
