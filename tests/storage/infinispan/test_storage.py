"""Storage `infinispan`: the contract suite (tests/storage/contract.py) on a real server."""

from uuid import uuid4

import pytest
from hypothesis.stateful import run_state_machine_as_test

from storage.infinispan.rest_client import InfinispanRest
from storage.infinispan.storage import ServerSettings
from tests.storage.contract import StorageContract
from tests.storage.infinispan.storages import SMALL, InfinispanHarness
from tests.storage.model import StorageMachine, machine_settings

pytestmark = pytest.mark.slow

IN_MEMORY = {"local-cache": {"encoding": {"media-type": "application/octet-stream"}}}


@pytest.fixture(scope="module")
def rest(infinispan):
    """Makes connections to a cache in memory, because hundreds of commits need not wait for the disk."""
    name = f"contract-{uuid4().hex[:12]}"
    infinispan.create_cache(name, IN_MEMORY)
    return lambda: InfinispanRest(ServerSettings(infinispan.url, name, timeout_ms=120_000))


@pytest.fixture
def harness(rest):
    made = InfinispanHarness(rest)
    yield made
    made.close()


class TestInfinispanContract(StorageContract):
    @pytest.fixture
    def harness(self, harness):
        return harness


@pytest.mark.parametrize("layout", [{}, SMALL], ids=["as shipped", "small"])
def test_random_runs_are_as_the_model_says(rest, layout):
    class Machine(StorageMachine):
        def make_harness(self):
            self.harness = InfinispanHarness(rest, **layout)
            return self.harness

        def teardown(self):
            super().teardown()
            self.harness.close()

    run_state_machine_as_test(Machine, settings=machine_settings)


def test_what_is_committed_outlives_the_process(harness):
    assert harness.make().is_durable
