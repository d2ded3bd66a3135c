"""Storage `infinispan`: the contract on a real server."""

import pytest
from hypothesis.stateful import run_state_machine_as_test

from storage.infinispan_rest import InfinispanRest
from storage.infinispan_settings import ServerSettings
from tests.storage.contract import StorageContract
from tests.storage.infinispan_harness import SMALL, InfinispanHarness
from tests.storage.model import StorageMachine, machine_settings

pytestmark = pytest.mark.slow

CACHE = "contract"


@pytest.fixture
def rest(infinispan):
    """Makes connections to the server of the whole run."""
    return lambda: InfinispanRest(ServerSettings(infinispan.url, CACHE))


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
def test_random_lives_are_as_the_model_says(rest, layout):
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
