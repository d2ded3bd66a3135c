"""Storage `none`: the contract suite (tests/storage/contract.py), and its limit of memory."""

from itertools import count

import pytest

from resequencer.storage_port import Commit, PartitionStore, UnitChange
from storage.none import NoneSettings, NoneStorage
from tests.storage.contract import OTHER, PARTITION, StorageContract, idle, put, waiting
from tests.storage.model import StorageMachine, machine_settings


class NoneHarness:
    def __init__(self) -> None:
        tokens = count()
        self.storage = NoneStorage(NoneSettings(1 << 40), lambda: f"token-{next(tokens)}")

    def make(self) -> NoneStorage:
        return self.storage

    def commit_unanswered(self, store: PartitionStore, commit: Commit) -> None:
        before = store.header
        store.commit(commit)
        store._header = before


class TestNoneContract(StorageContract):
    @pytest.fixture
    def harness(self) -> NoneHarness:
        return NoneHarness()


class NoneMachine(StorageMachine):
    def make_harness(self) -> NoneHarness:
        return NoneHarness()


TestNoneMachine = NoneMachine.TestCase
TestNoneMachine.settings = machine_settings


@pytest.fixture
def bounded() -> NoneStorage:
    tokens = count()
    return NoneStorage(NoneSettings(3 * 320), lambda: f"token-{next(tokens)}")


def kept(*stores: PartitionStore) -> set[str]:
    return {unit for store in stores for unit in store.load("abcdefg")}


def test_nothing_outlives_the_process():
    assert not NoneHarness().make().is_durable


def expire(*stores: PartitionStore, spared: set[str] = frozenset()) -> int:
    return sum(store.expire(-1, spared) for store in stores)


def test_beyond_the_bound_the_idle_units_that_changed_longest_ago_go_first(bounded):
    store = bounded.open(PARTITION)
    put(store, idle("a"), idle("b"), idle("c"))
    put(store, idle("a"), idle("d"))
    assert expire(store) == 1
    assert kept(store) == {"a", "c", "d"}


def test_each_partition_has_its_share_of_the_bound(bounded):
    store, other = bounded.open(PARTITION), bounded.open(OTHER)
    put(store, idle("a"), idle("b"))
    put(other, idle("c"), idle("d"), idle("e"), idle("f"))
    assert expire(store, other) == 3
    assert kept(store, other) == {"b", "e", "f"}


def test_waiting_units_stay_beyond_the_bound_and_do_not_count(bounded):
    store = bounded.open(PARTITION)
    put(store, idle("a"), *(waiting(unit) for unit in "bcdef"))
    assert expire(store) == 0
    put(store, *map(idle, "bcd"))
    assert expire(store) == 1
    assert kept(store) == set("bcdef")


def test_units_in_memory_stay_beyond_the_bound(bounded):
    store = bounded.open(PARTITION)
    put(store, *map(idle, "abcde"))
    assert expire(store, spared=set("abcd")) == 1
    assert kept(store) == set("abcd")


def test_the_bound_counts_bytes(bounded):
    store = bounded.open(PARTITION)
    put(store, UnitChange("a", b"", data=b"x" * 10_000), idle("b"))
    assert expire(store) == 1
    assert kept(store) == {"b"}
    put(store, UnitChange("b", b"", data=b"x" * 10_000))
    put(store, UnitChange("b", b"", data=b"x"), idle("c"))
    assert expire(store) == 0
