"""The view of storage `redis`: the contract (tests/storage/view_contract.py) on a real server and on a real cluster."""

import re
from pathlib import Path

import pytest
from hypothesis.stateful import run_state_machine_as_test

from resequencer.storage_port import StorageRefused, StorageUnavailable, StorageWithheld
from servers.redis import RedisServer
from storage.redis.header import RedisKeys
from storage.redis.view import RedisStorageView
from tests.storage.contract import PARTITION, WAITS, idle, put, waiting
from tests.storage.model import machine_settings
from tests.storage.redis.storages import RedisHarness
from tests.storage.redis.test_access import as_user
from tests.storage.view_contract import MANY, Copy, StorageViewContract, ViewMachine

pytestmark = pytest.mark.slow

SERVERS = Path("docs/servers.md").read_text(encoding="utf-8")
RIGHTS = re.search(r"^ACL SETUSER resequencer-view on >PASSWORD (.*)$", SERVERS, re.MULTILINE)[1]


class TestRedisViewContract(StorageViewContract):
    @pytest.fixture
    def harness(self, redis: RedisHarness) -> RedisHarness:
        return redis


@pytest.mark.nightly("storages")
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
    with pytest.raises(StorageWithheld, match=r"docs/servers\.md"):
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


def test_a_log_of_changes_that_was_cut_off_leads_to_the_whole_and_is_bounded(redis):
    store, view = redis.make().open(PARTITION), redis.make_view()
    put(store, *(waiting(f"{number}{'x' * 1_000}") for number in range(100)))
    copy, behind = Copy(view), Copy(view)
    behind.follow()
    for number in range(99):
        copy.follow()
        put(store, idle(f"{number}{'x' * 1_000}"))
    assert not copy.follow().is_whole
    assert behind.follow().is_whole
    assert copy.waits == behind.waits == {f"99{'x' * 1_000}": WAITS}
    keys = RedisKeys(redis.namespace, PARTITION)
    assert 50 < redis.client_of(keys).hlen(keys.changes) < 64


def test_units_that_did_not_wait_before_and_do_not_wait_now_are_not_in_the_log(redis):
    store = redis.make().open(PARTITION)
    put(store, waiting("a"))
    view = redis.make_view()
    marker = view.find_waiting(PARTITION, None).marker
    put(store, idle("a"), *(idle(f"idle-{number}") for number in range(100)))
    assert list(view.find_waiting(PARTITION, marker).portions) == [[("a", None)]]


def test_a_log_of_changes_that_was_deleted_by_hand_leads_to_the_whole_and_begins_anew(redis):
    store, view, keys = redis.make().open(PARTITION), redis.make_view(), RedisKeys(redis.namespace, PARTITION)
    put(store, waiting("a"), waiting("b"))
    copy = Copy(view)
    copy.follow()
    put(store, idle("a"))
    redis.client_of(keys).unlink(keys.changes)
    assert copy.follow().is_whole
    put(store, waiting("c"))
    copy.follow()
    put(store, idle("c"))
    assert not copy.follow().is_whole
    assert copy.waits == {"b": WAITS}


def test_a_server_that_lost_its_last_commits_is_listed_whole(own_redis):
    own = own_redis(append="none")
    store = own.open()
    put(store, waiting("a"))
    own.client.save()
    put(store, waiting("lost"))
    copy = Copy(own.harness.make_view())
    copy.follow()
    own.server.kill()
    own.server.start()
    with pytest.raises(StorageUnavailable):
        copy.follow()
    assert copy.follow().is_whole
    assert copy.waits == {"a": WAITS}
    copy.marker, copy.waits = f"{store.header.token}/2", {"lost": WAITS}
    put(own.open(), waiting("b"))
    assert copy.follow().is_whole
    assert copy.waits == {"a": WAITS, "b": WAITS}


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
