"""The simulation's storage passes the contract suite of the real storages, and forgets what a test lets it forget."""

from itertools import count

import pytest
from simulation.shared_storage import Backup, SharedStorage

from resequencer.storage_port import Commit, PartitionStore
from storage.none import Memory
from tests.storage.contract import OTHER, PARTITION, StorageContract, idle, put, waiting
from tests.storage.model import StorageMachine, machine_settings


class SharedHarness:
    def __init__(self) -> None:
        self.memory = Memory()
        self._tokens = count()

    def make(self) -> SharedStorage:
        return SharedStorage(self.memory, lambda: f"token-{next(self._tokens)}")

    def commit_unanswered(self, store: PartitionStore, commit: Commit) -> None:
        before = store.header
        store.commit(commit)
        store._header = before


class TestSharedContract(StorageContract):
    @pytest.fixture
    def harness(self) -> SharedHarness:
        return SharedHarness()


class SharedMachine(StorageMachine):
    def make_harness(self) -> SharedHarness:
        return SharedHarness()


TestSharedMachine = SharedMachine.TestCase
TestSharedMachine.settings = machine_settings


@pytest.fixture
def harness() -> SharedHarness:
    return SharedHarness()


def test_what_is_committed_outlives_the_process(harness):
    put(harness.make().open(PARTITION), idle("a"))
    assert set(harness.make().open(PARTITION).load("a")) == {"a"}


def test_what_came_after_a_backup_is_forgotten_in_the_partitions_that_are_restored(harness):
    store, other = harness.make().open(PARTITION), harness.make().open(OTHER)
    put(store, idle("a"), next_offset=1)
    backup = Backup(harness.memory)
    put(store, waiting("b"), next_offset=2)
    put(other, idle("c"), next_offset=3)
    backup.restore(harness.memory, [PARTITION])
    restored = harness.make().open(PARTITION)
    assert (set(restored.load("ab")), restored.header.next_offset) == ({"a"}, 1)
    assert set(harness.make().open(OTHER).load("c")) == {"c"}


def test_what_is_idle_expires_after_a_restoration_too(harness):
    put(harness.make().open(PARTITION), idle("a"))
    Backup(harness.memory).restore(harness.memory, [PARTITION])
    assert harness.make().open(PARTITION).expire(0, ()) == 1
    assert not harness.make().open(PARTITION).load("a")
