"""Storage `embedded`: the contract suite (tests/storage/contract.py) on a real file."""

from pathlib import Path

import pytest

from tests.storage.contract import StorageContract
from tests.storage.embedded.storages import EmbeddedHarness, memory_directory
from tests.storage.model import StorageMachine, machine_settings


class TestEmbeddedContract(StorageContract):
    @pytest.fixture
    def harness(self, embedded: EmbeddedHarness) -> EmbeddedHarness:
        return embedded


class EmbeddedMachine(StorageMachine):
    def make_harness(self) -> EmbeddedHarness:
        self.directory = memory_directory()
        return EmbeddedHarness(Path(self.directory.name))

    def teardown(self) -> None:
        super().teardown()
        self.directory.cleanup()


TestEmbeddedMachine = EmbeddedMachine.TestCase
TestEmbeddedMachine.settings = machine_settings


def test_what_is_committed_outlives_the_process(embedded):
    assert embedded.make().is_durable
