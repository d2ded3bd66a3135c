"""Storage `none`: the contract, and its bound."""

from itertools import count

import pytest

from storage.none import NoneSettings, NoneStorage
from storage.port import Commit, PartitionStore
from tests.storage.contract import OTHER, PARTITION, RETENTION_MS, StorageContract, idle, put, waiting
from tests.storage.model import StorageMachine, machine_settings


class NoneHarness:
    def __init__(self) -> None:
        tokens = count()
        self.storage = NoneStorage(NoneSettings(RETENTION_MS, 20_000), lambda: f"token-{next(tokens)}")

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
    return NoneStorage(NoneSettings(RETENTION_MS, 3), lambda: f"token-{next(tokens)}")


def kept(*stores: PartitionStore) -> set[str]:
    return {unit for store in stores for unit in store.load("abcdefg")}


def test_nothing_outlives_the_process():
    assert not NoneHarness().make().is_durable


def test_beyond_the_bound_the_idle_units_that_changed_longest_ago_go_first(bounded):
    store = bounded.open(PARTITION)
    put(store, idle("a", 1), idle("b", 2), idle("c", 3))
    put(store, idle("a", 4), idle("d", 5))
    assert kept(store) == {"a", "c", "d"}


def test_the_bound_is_one_for_all_partitions(bounded):
    store, other = bounded.open(PARTITION), bounded.open(OTHER)
    put(store, idle("a"), idle("b"))
    put(other, idle("c"), idle("d"))
    assert kept(store, other) == {"b", "c", "d"}


def test_waiting_units_stay_beyond_the_bound_and_take_the_place_of_idle_ones(bounded):
    store = bounded.open(PARTITION)
    put(store, idle("a"), *(waiting(unit) for unit in "bcdef"))
    assert kept(store) == set("bcdef")
    put(store, idle("b"))
    assert kept(store) == set("cdef")


def test_a_clock_that_steps_back_keeps_units_longer_but_within_the_bound(bounded):
    store = bounded.open(PARTITION)
    put(store, idle("a", 10_000))
    put(store, idle("b", 0))
    assert bounded.expire(RETENTION_MS) == 0
    assert bounded.expire(10_000 + RETENTION_MS) == 2
