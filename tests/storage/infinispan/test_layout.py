"""Storage `infinispan`: the layout passes the contract with any sizes, on a cache in memory."""

import pytest

from tests.storage.contract import StorageContract
from tests.storage.infinispan.memory import MemoryCache, MemoryServer
from tests.storage.infinispan.storages import SMALL, InfinispanHarness
from tests.storage.model import StorageMachine, machine_settings


def harness_of(server: MemoryServer, **layout: int) -> InfinispanHarness:
    return InfinispanHarness(lambda: MemoryCache(server), **layout)


class TestLayoutContract(StorageContract):
    @pytest.fixture
    def harness(self) -> InfinispanHarness:
        return harness_of(MemoryServer())


class TestSmallLayoutContract(StorageContract):
    @pytest.fixture
    def harness(self) -> InfinispanHarness:
        return harness_of(MemoryServer(), **SMALL)


class SmallLayoutMachine(StorageMachine):
    def make_harness(self) -> InfinispanHarness:
        return harness_of(MemoryServer(), **SMALL)


TestSmallLayoutMachine = SmallLayoutMachine.TestCase
TestSmallLayoutMachine.settings = machine_settings
