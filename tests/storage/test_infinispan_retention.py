"""Storage `infinispan`: what is forgotten goes with its pages, and nothing that somebody still needs goes with it."""

import pytest

from storage.infinispan_forgotten import Span
from storage.infinispan_partition import InfinispanPartitionStore
from storage.port import UnitChange
from tests.storage.contract import PARTITION, RETENTION_MS, idle, put, waiting
from tests.storage.infinispan_harness import SMALL, InfinispanHarness
from tests.storage.infinispan_memory import MemoryCache, MemoryServer

GRACE_MS = 500


@pytest.fixture
def server() -> MemoryServer:
    return MemoryServer()


@pytest.fixture
def harness(server: MemoryServer) -> InfinispanHarness:
    return InfinispanHarness(lambda: MemoryCache(server), **SMALL | {"few_units": 10**6})


def pass_time(harness: InfinispanHarness, store: InfinispanPartitionStore, since: int, until: int) -> None:
    """Other units come, and grow old, for so long."""
    for now in range(since, until, 100):
        put(store, *(idle(f"other-{now}-{number}", now) for number in range(5)))
        harness.made[-1].expire(now)


def test_a_unit_that_was_loaded_goes_on_from_what_was_found_however_old_it_becomes(harness):
    store = harness.make().open(PARTITION)
    put(store, UnitChange("a", b"", payment_data=b"data"))
    pass_time(harness, store, 0, 900)
    assert store.load(["a"])["a"].payment_data == b"data"
    first = store._contents.archive.tail
    pass_time(harness, store, 900, 9_000)
    assert store._contents.archive.tail > first + 100
    put(store, UnitChange("a", b""))
    assert store.load(["a"])["a"].payment_data == b"data"


def test_what_waits_moves_on_when_its_page_grows_old(harness):
    store = harness.make().open(PARTITION)
    put(store, waiting("a"))
    pass_time(harness, store, 0, 5_000)
    assert store._contents.archive.tail > 50
    taken = harness.make().open(PARTITION)
    assert [unit for unit, _ in taken.waiting()] == ["a"]
    assert taken.load(["a"])["a"].state == b"state of a"


def test_pages_in_which_all_is_forgotten_go_without_being_read(harness, server):
    store = harness.make().open(PARTITION)
    pass_time(harness, store, 0, 4_000)
    server.log.clear()
    pass_time(harness, store, 4_000, 8_000)
    assert [key for act, key in server.log if act == "get"] == []
    assert len([key for act, key in server.log if act == "delete" and ":p:" in key]) > 50


def test_the_space_of_changed_units_is_taken_back(server):
    """A few units that change all the time, one that never does: the cache holds about what they take."""
    harness = InfinispanHarness(lambda: MemoryCache(server), **SMALL)
    store = harness.make().open(PARTITION)
    put(store, idle("a"))
    for _ in range(300):
        put(store, *(idle(f"unit-{number}") for number in range(5)))
    assert store._contents.archive.head > 150
    assert len(server.values) < 40
    assert store.load(["a"]).keys() == {"a"}


@pytest.mark.parametrize("was_loaded", [False, True])
def test_whether_a_forgotten_unit_begins_anew_is_as_its_owner_was_told(harness, was_loaded):
    store = harness.make(span=Span(RETENTION_MS, GRACE_MS)).open(PARTITION)
    put(store, UnitChange("a", b"", payment_data=b"data"))
    harness.made[-1].expire(RETENTION_MS + GRACE_MS - 1)
    if was_loaded:
        assert store.load(["a"]) == {}
    put(store, UnitChange("a", b""))
    assert store.load(["a"])["a"].payment_data == (None if was_loaded else b"data")


def test_beyond_the_grace_nobody_has_a_unit_in_use(harness):
    store = harness.make(span=Span(RETENTION_MS, GRACE_MS)).open(PARTITION)
    put(store, UnitChange("a", b"", payment_data=b"data"))
    harness.made[-1].expire(RETENTION_MS + GRACE_MS)
    put(store, UnitChange("a", b""))
    assert store.load(["a"])["a"].payment_data is None
