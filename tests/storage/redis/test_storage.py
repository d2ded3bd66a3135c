"""Storage `redis`: the contract suite (tests/storage/contract.py) on a real server and on a real cluster."""

import pytest
from hypothesis.stateful import invariant, run_state_machine_as_test

from storage.redis.header import RedisKeys
from tests.storage.contract import StorageContract
from tests.storage.model import StorageMachine, machine_settings
from tests.storage.redis.storages import RedisHarness

pytestmark = pytest.mark.slow


class TestRedisContract(StorageContract):
    @pytest.fixture
    def harness(self, redis: RedisHarness) -> RedisHarness:
        return redis


@pytest.mark.nightly("storages")
class TestRedisClusterContract(StorageContract):
    @pytest.fixture
    def harness(self, clustered: RedisHarness) -> RedisHarness:
        return clustered


class RedisMachine(StorageMachine):
    """The class attribute is the server; each run has a namespace of its own there."""

    beside: RedisHarness

    def make_harness(self) -> RedisHarness:
        self.harness = self.beside.another()
        return self.harness

    @invariant()
    def each_unit_is_in_one_index_and_the_header_counts_them(self) -> None:
        for partition, model in getattr(self, "model", {}).items():
            keys = RedisKeys(self.harness.namespace, partition)
            client = self.harness.client_of(keys)
            waiting = {unit.decode() for unit in client.hkeys(keys.waiting)}
            idle = {unit.decode(): clock for unit, clock in client.zrange(keys.idle, 0, -1, withscores=True)}
            assert waiting == {name for name, unit in model.units.items() if unit.waits is not None}
            assert idle == {name: unit.changed_at for name, unit in model.units.items() if unit.waits is None}
            assert {client.ttl(key) for key in keys.units(model.units)} <= {-1}
            if model.token is not None:
                counted = [int(each or 0) for each in client.hmget(keys.header, "waiting", "idle")]
                assert counted == [len(waiting), len(idle)]

    def teardown(self) -> None:
        super().teardown()
        self.harness.clear_away()


@pytest.mark.parametrize("server", ["redis", "clustered"])
def test_random_runs_are_as_the_model_says(server: str, request: pytest.FixtureRequest) -> None:
    machine = type("Machine", (RedisMachine,), {"beside": request.getfixturevalue(server)})
    run_state_machine_as_test(machine, settings=machine_settings)


def test_what_is_committed_outlives_the_process(redis: RedisHarness) -> None:
    assert redis.make().is_durable
