"""Storage `redis`: the contract on a real server and on a real cluster."""

import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.storage.contract import StorageContract
from tests.storage.model import StorageMachine, machine_settings
from tests.storage.redis_harness import RedisHarness

pytestmark = pytest.mark.slow


class TestRedisContract(StorageContract):
    @pytest.fixture
    def harness(self, redis: RedisHarness) -> RedisHarness:
        return redis


class TestRedisClusterContract(StorageContract):
    @pytest.fixture
    def harness(self, clustered: RedisHarness) -> RedisHarness:
        return clustered


class RedisMachine(StorageMachine):
    """Its class attribute is the server; each life has a namespace of its own there."""

    beside: RedisHarness

    def make_harness(self) -> RedisHarness:
        self.harness = self.beside.another()
        return self.harness

    def teardown(self) -> None:
        super().teardown()
        self.harness.clear_away()


@pytest.mark.parametrize("server", ["redis", "clustered"])
def test_random_lives_are_as_the_model_says(server: str, request: pytest.FixtureRequest) -> None:
    machine = type("Machine", (RedisMachine,), {"beside": request.getfixturevalue(server)})
    run_state_machine_as_test(machine, settings=machine_settings)


def test_what_is_committed_outlives_the_process(redis: RedisHarness) -> None:
    assert redis.make().is_durable
