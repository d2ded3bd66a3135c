"""The view of storage `redis`: the contract (tests/storage/view_contract.py) on a real server and on a real cluster."""

import re
from pathlib import Path

import pytest
from hypothesis.stateful import run_state_machine_as_test

from servers.redis.server import RedisServer
from storage.port import StorageRefused, StorageUnavailable, StorageWithheld
from storage.redis.keys import RedisKeys
from storage.redis.view import RedisStorageView
from tests.storage.contract import PARTITION, WAITS, put, waiting
from tests.storage.model import machine_settings
from tests.storage.redis.storages import RedisHarness
from tests.storage.redis.test_access import as_user
from tests.storage.view_contract import MANY, Copy, StorageViewContract, ViewMachine

pytestmark = pytest.mark.slow

OPERATIONS = Path("docs/operations.md").read_text(encoding="utf-8")
RIGHTS = re.search(r"^ACL SETUSER resequencer-view on >PASSWORD (.*)$", OPERATIONS, re.MULTILINE)[1]


class TestRedisViewContract(StorageViewContract):
    @pytest.fixture
    def harness(self, redis: RedisHarness) -> RedisHarness:
        return redis


class TestRedisClusterViewContract(StorageViewContract):
    @pytest.fixture
    def harness(self, clustered: RedisHarness) -> RedisHarness:
        return clustered


class RedisViewMachine(ViewMachine):
    beside: RedisHarness

    def make_harness(self) -> RedisHarness:
        self.harness = self.beside.another()
        return self.harness

    def teardown(self) -> None:
        super().teardown()
        self.harness.clear_away()


@pytest.mark.parametrize("server", ["redis", "clustered"])
def test_random_runs_are_as_the_model_says(server: str, request: pytest.FixtureRequest) -> None:
    machine = type("Machine", (RedisViewMachine,), {"beside": request.getfixturevalue(server)})
    run_state_machine_as_test(machine, settings=machine_settings)


def look_everywhere(view: RedisStorageView) -> None:
    assert view.find_header(PARTITION) is not None
    assert view.find_unit(PARTITION, "a").waits == WAITS
    copy = Copy(view)
    copy.follow()
    assert copy.waits == {"a": WAITS}


def test_the_documented_rights_of_a_view_are_enough_and_do_not_allow_a_write(own_redis):
    own = own_redis()
    put(own.open(), waiting("a"))
    place = as_user(own, "resequencer-view", RIGHTS)
    look_everywhere(own.harness.make_view(place=place))
    with pytest.raises(StorageWithheld):
        own.harness.make(place=place).open(PARTITION)


@pytest.mark.parametrize("right", ["+eval_ro", "+evalsha_ro", "+hgetall", "+hget", "+hscan", "+info"])
def test_a_right_that_the_view_lacks_is_told(own_redis, right):
    assert right in RIGHTS.split()
    own = own_redis()
    put(own.open(), waiting("a"))
    view = own.harness.make_view(place=as_user(own, "resequencer-view", f"{RIGHTS} -{right[1:]}"))
    with pytest.raises(StorageWithheld, match=r"docs/operations\.md"):
        look_everywhere(view)


def test_a_server_without_scripts_that_only_read_is_named_as_too_old(own_redis):
    class Older(RedisServer):
        def _configuration(self, data: Path) -> list[str]:
            return [*super()._configuration(data), 'rename-command EVALSHA_RO ""', 'rename-command EVAL_RO ""']

    own = own_redis(Older)
    put(own.open(), waiting("a"))
    with pytest.raises(StorageRefused, match=r"needs Redis 7\.0"):
        own.harness.make_view().find_header(PARTITION)


def test_a_server_that_was_started_anew_in_the_midst_of_a_reading_makes_it_void(own_redis):
    own = own_redis()
    put(own.open(), *(waiting(f"unit-{number}") for number in range(MANY)))
    view = own.harness.make_view()
    portions = view.find_waiting(PARTITION, None).portions
    next(portions)
    own.server.kill()
    with pytest.raises(StorageUnavailable):
        view.find_header(PARTITION)
    own.server.start()
    with pytest.raises(StorageUnavailable, match="restarted"):
        list(portions)
    copy = Copy(view)
    copy.follow()
    assert len(copy.waits) == MANY


def test_a_missing_key_of_a_waiting_unit_and_a_newer_format_are_refused(redis):
    put(redis.make().open(PARTITION), waiting("a"))
    view, keys = redis.make_view(), RedisKeys(redis.namespace, PARTITION)
    client = redis.client_of(keys)
    client.unlink(*keys.units(["a"]))
    with pytest.raises(StorageRefused, match="its key is missing"):
        view.find_unit(PARTITION, "a")
    client.hset(keys.header, "format", 3)
    for look in (view.find_header, lambda partition: view.find_unit(partition, "a"), lambda each: view.find_waiting(each, None)):
        with pytest.raises(StorageRefused, match="its format is 3"):
            look(PARTITION)
