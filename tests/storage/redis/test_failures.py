"""A Redis server that dies, hangs, loads data, is full or was demoted: the worker only waits, and no commit is half stored."""

from collections.abc import Sequence

import pytest
from harness.waiting import wait_until
from redis.exceptions import DataError

from resequencer.storage_port import Pending, Snapshot, StashEntry, StorageUnavailable, UnitChange
from servers.redis import RedisServer
from tests.storage.contract import PARTITION, WAITS, following, idle, put, waiting
from tests.storage.redis.storages import is_answered

pytestmark = pytest.mark.slow

IMPATIENT_MS = 1_000
"""How long an answer is waited for where a server stands still."""


class SlowlyLoading(RedisServer):
    """A server that takes 0.1 ms for each command of its log; after every thousand commands it answers its clients."""

    def _configuration(self, data: object) -> list[str]:
        return [*super()._configuration(data), "key-load-delay 100"]


def everything(store) -> Sequence[object]:
    return store.load(["a", "b"]), store.waiting(), store.pending(), store.header


def filled(store):
    """Commit some of everything; return the next commit, not made yet."""
    stash = (StashEntry(1, b"one"), StashEntry(2, b"two"))
    put(store, UnitChange("a", b"state", WAITS, stash, (), b"data"), added=(Pending(1, b"one"),), highest_number=1)
    change = UnitChange("a", b"later", None, (), (1, 2))
    return following(store, change, waiting("b"), added=(Pending(2, b"two"),), published=1, highest_number=2)


def check_second(store) -> None:
    assert store.load(["a"]) == {"a": Snapshot("a", b"later", b"data", ())}
    assert store.waiting() == [("b", WAITS)]
    assert store.pending() == [Pending(2, b"two")]


def is_committed(store, commit, complaints: list[str]) -> bool:
    try:
        store.commit(commit)
    except StorageUnavailable as error:
        complaints.append(str(error))
        return False
    return True


def test_a_server_that_was_killed_is_unavailable_and_has_every_commit_when_it_is_back(own_redis):
    own = own_redis(append="always")
    store = own.open()
    second = filled(store)
    own.server.kill()
    for act in (lambda: store.commit(second), lambda: store.load(["a"]), store.waiting, own.open):
        with pytest.raises(StorageUnavailable):
            act()
    own.server.start()
    store.commit(second)
    check_second(store)


def test_a_commit_that_landed_after_its_time_out_has_an_effect_once(own_redis):
    own = own_redis()
    store = own.open(timeout_ms=IMPATIENT_MS)
    second = filled(store)
    own.server.pause()
    with pytest.raises(StorageUnavailable, match="Timeout"):
        store.commit(second)
    own.server.resume()
    wait_until(lambda: own.client.hget(f"{{{own.harness.namespace}:{PARTITION.topic}:0}}:header", "commit") == b"2", "it lands")
    assert store.header.commit == 1
    wait_until(lambda: is_answered(lambda: store.commit(second)), "it is known to have landed")
    check_second(store)
    put(store, idle("c"))


def test_a_hanging_server_is_never_waited_for_longer_than_the_time_out(own_redis):
    own = own_redis()
    store = own.open(timeout_ms=IMPATIENT_MS)
    large = following(store, UnitChange("a", b"x" * 20_000_000))
    own.server.pause()
    opens = lambda: own.open(timeout_ms=IMPATIENT_MS)  # noqa: E731 - One of several acts.
    for act in (lambda: store.commit(large), lambda: store.load(["a"]), opens, lambda: store.expire(0, ())):
        with pytest.raises(StorageUnavailable):
            act()
    own.server.resume()
    wait_until(lambda: is_committed(store, large, []), "it has taken what was sent to it meanwhile")
    assert store.header.commit == 1


def test_a_connection_that_was_cut_costs_one_try(own_redis):
    own = own_redis()
    store = own.open()
    second = filled(store)
    assert own.client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") > 0
    with pytest.raises(StorageUnavailable, match="losed"):
        store.commit(second)
    store.commit(second)
    check_second(store)


def test_a_server_that_is_loading_is_waited_for(own_redis):
    own = own_redis(SlowlyLoading)
    store = own.open()
    for first in range(0, 6_000, 500):
        put(store, *(idle(f"unit-{number}") for number in range(first, first + 500)))
    second = following(store, waiting("b"))
    own.server.kill()
    own.server.launch()
    seen: list[str] = []
    wait_until(lambda: is_committed(store, second, seen), "it has loaded")
    assert any("reading its data from the disk" in each for each in seen)
    assert store.waiting() == [("b", WAITS)]


def test_a_full_server_refuses_a_commit_whole_and_takes_the_same_one_when_it_has_room(own_redis):
    own = own_redis()
    store = own.open()
    second = filled(store)
    before = everything(store)
    own.client.config_set("maxmemory", 1)
    with pytest.raises(StorageUnavailable, match="memory is full"):
        store.commit(second)
    own.client.config_set("maxmemory", 0)
    assert everything(store) == before
    store.commit(second)
    check_second(store)


def test_a_server_that_was_demoted_takes_nothing_and_is_entered_anew(own_redis):
    own = own_redis()
    store = own.open()
    second = filled(store)
    own.client.replicaof("127.0.0.1", 1)
    with pytest.raises(StorageUnavailable, match="it is a replica"):
        store.commit(second)
    own.client.replicaof("NO", "ONE")
    store.commit(second)
    check_second(store)


def test_a_change_that_cannot_be_sent_is_a_mistake_and_no_failure_of_the_server(own_redis):
    store = own_redis().open()
    with pytest.raises(DataError):
        put(store, idle("a"), UnitChange("b", None))
    put(store, idle("a"))
    assert store.load(["a", "b"]).keys() == {"a"}


def test_a_server_that_lost_its_scripts_is_told_them_again(own_redis):
    own = own_redis()
    store = own.open()
    second = filled(store)
    own.client.script_flush()
    store.commit(second)
    own.client.script_flush()
    check_second(store)


def test_a_server_that_forgot_everything_is_an_empty_one(own_redis):
    own = own_redis(append="none")
    filled(own.open())
    own.server.kill()
    own.server.start()
    store = own.open()
    assert store.header.is_empty
    assert (store.header.history, store.waiting(), store.pending()) == ((), [], [])
