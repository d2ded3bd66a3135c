"""Idle units in Redis: the caught-up clock expires them, not the server. Their index is rebuilt if it is incomplete."""

import logging
from functools import partial

import pytest

from resequencer.errors import OwnershipLost
from resequencer.storage_port import Pending, Snapshot, StashEntry, StorageUnavailable, UnitChange
from storage.redis import partition
from storage.redis.header import RedisKeys
from tests.storage.contract import OTHER, PARTITION, expire_all, idle, put, waiting
from tests.storage.redis.storages import unit_key

pytestmark = pytest.mark.slow


@pytest.fixture
def warnings(caplog):
    caplog.set_level(logging.WARNING, "resequencer.storage")
    return lambda: [each.getMessage() for each in caplog.records if "append" not in each.getMessage()]


def indexed(client, keys) -> dict[bytes, float]:
    """Return the idle units with the clock of their last change; the header's count must agree."""
    units = dict(client.zrange(keys.idle, 0, -1, withscores=True))
    assert client.hget(keys.header, "idle") == b"%d" % len(units)
    return units


def expiring(client, keys) -> set[bytes]:
    return {key for key in client.scan_iter(keys.tag.encode() + b"*", count=10_000) if client.ttl(key) != -1}


# Which units are forgotten, and by which owner.


def test_nothing_of_ours_expires_at_the_server(client, keys, store, redis):
    put(store, waiting("a"), idle("b"), idle("c"), added=(Pending(1, b"one"),), highest_number=1)
    put(store, idle("a"), waiting("b"), caught_up_ms=5)
    store.load("abc")
    store.expire(0, ())
    redis.make().open(PARTITION)
    assert expiring(client, keys) == set()


def test_each_idle_unit_is_in_the_index_under_the_clock_of_its_last_change_and_no_waiting_one_is(client, keys, store):
    put(store, idle("a"), waiting("b"), idle("c"))
    assert indexed(client, keys) == {b"a": 0, b"c": 0}
    put(store, waiting("a"), idle("b"), idle("d"), caught_up_ms=2**40)
    assert indexed(client, keys) == {b"b": 2**40, b"c": 0, b"d": 2**40}
    store.expire(2**40 - 1, ())
    assert indexed(client, keys) == {b"b": 2**40, b"d": 2**40}


def test_what_is_forgotten_leaves_nothing_behind(client, keys, store):
    change = UnitChange("a", b"", None, (StashEntry(1, b"one"),), (), b"data")
    put(store, change, *(idle(f"unit-{number}") for number in range(1_500)))
    expire_all(store, 0)
    assert set(client.scan_iter(keys.tag.encode() + b"*", count=10_000)) == {keys.header, keys.changes}
    assert indexed(client, keys) == {}


def test_what_waits_or_has_changed_since_it_was_found_is_not_forgotten(client, keys, store, monkeypatch):
    put(store, idle("changed"), idle("waits"), idle("due"))
    found = list(store._due(0))
    put(store, idle("changed"), waiting("waits"), caught_up_ms=1)
    monkeypatch.setattr(store, "_due", lambda _: iter(found))
    assert store.expire(0, ()) == 1
    assert store.load(["changed", "waits", "due"]).keys() == {"changed", "waits"}
    assert indexed(client, keys) == {b"changed": 1}


def test_an_owner_who_is_overtaken_between_finding_and_forgetting_forgets_nothing(client, keys, store, redis, monkeypatch):
    put(store, idle("a"))
    found = list(store._due(0))
    owner = redis.make().open(PARTITION)
    monkeypatch.setattr(store, "_due", lambda _: iter(found))
    with pytest.raises(OwnershipLost):
        store.expire(0, ())
    assert owner.load(["a"]).keys() == {"a"}
    assert indexed(client, keys) == {b"a": 0}


def test_a_full_server_forgets_all_the_same(own_redis):
    own = own_redis()
    store = own.open()
    put(store, *(UnitChange(f"unit-{number}", b"x" * 1_000) for number in range(100)), waiting("a"))
    own.client.config_set("maxmemory", 1)
    with pytest.raises(StorageUnavailable, match="memory is full"):
        put(store, idle("b"))
    assert store.expire(0, ()) == 100
    own.client.config_set("maxmemory", 0)
    put(store, idle("b"))
    assert indexed(own.client, RedisKeys(own.harness.namespace, PARTITION)) == {b"b": 0}
    assert store.load(["unit-1", "a", "b"]).keys() == {"a", "b"}


def test_what_was_forgotten_while_the_server_did_not_answer_is_forgotten_once(own_redis):
    own = own_redis(append="always")
    store = own.open()
    put(store, *(idle(f"unit-{number}") for number in range(1_500)), waiting("a"))
    run = store._run

    def run_unanswered(*arguments):
        answer = run(*arguments)
        if arguments[0] is partition.FORGET:
            raise StorageUnavailable("no answer")
        return answer

    store._run = run_unanswered
    with pytest.raises(StorageUnavailable):
        store.expire(0, ())
    del store._run
    own.server.kill()
    own.server.start()
    with pytest.raises(StorageUnavailable):
        store.expire(0, ())
    assert (store.expire(0, ()), store.expire(0, ())) == (500, 0)
    assert own.client.dbsize() == 4
    assert indexed(own.client, RedisKeys(own.harness.namespace, PARTITION)) == {}


def test_a_replica_that_takes_over_forgets_what_is_due_and_keeps_the_rest(own_redis):
    own = own_redis(append="none")
    replica = own_redis(append="none", replica_of=own.server.ports["redis"])
    store = own.open()
    put(store, idle("gone"))
    put(store, idle("due"), idle("kept"), caught_up_ms=10)
    put(store, UnitChange("kept", b"later"), caught_up_ms=20)
    assert store.expire(0, ()) == 1
    assert own.client.wait(1, 5_000) == 1
    own.server.kill()
    replica.client.replicaof("NO", "ONE")
    taken = replica.open(namespace=own.harness.namespace)
    assert taken.header.caught_up_ms == 20
    assert (taken.expire(10, ()), taken.expire(10, ())) == (1, 0)
    assert taken.load(["gone", "due", "kept"]).keys() == {"kept"}


# Keys that were deleted by hand.


def test_an_index_that_was_deleted_is_made_again_at_the_next_takeover(client, keys, store, redis, warnings):
    put(store, waiting("a"), idle("b"))
    put(store, idle("c"), idle("d"), caught_up_ms=7)
    client.delete(keys.idle)
    taken = redis.make().open(PARTITION)
    assert indexed(client, keys) == {b"b": 7, b"c": 7, b"d": 7}
    assert "idle units in the index: 0 instead of 3" in warnings()[0]
    assert taken.expire(6, ()) == 0
    assert taken.expire(7, ()) == 3
    assert taken.load("abcd").keys() == {"a"}


def test_a_unit_that_was_taken_out_of_the_index_is_put_back_and_the_others_keep_their_clock(client, keys, store, redis):
    put(store, idle("a"), idle("b"))
    put(store, idle("c"), caught_up_ms=7)
    client.zrem(keys.idle, "a")
    redis.make().open(PARTITION)
    assert indexed(client, keys) == {b"a": 7, b"b": 0, b"c": 7}


def test_an_idle_unit_that_was_deleted_is_told_of_and_begins_anew(client, keys, store, warnings):
    put(store, idle("a"), idle("b"))
    client.delete(unit_key(keys, "a"))
    assert store.load(["a", "b", "new"]).keys() == {"b"}
    (text,) = warnings()
    assert f"keys of idle units are missing (1, for example Redis key {unit_key(keys, 'a').decode()})" in text
    put(store, UnitChange("a", b"anew"), caught_up_ms=1)
    assert store.load(["a"]) == {"a": Snapshot("a", b"anew", None, ())}
    assert len(warnings()) == 1
    assert indexed(client, keys) == {b"a": 1, b"b": 0}


def test_an_index_entry_without_its_unit_goes_when_it_is_due(client, keys, store):
    put(store, *(idle(f"unit-{number}") for number in range(1_200)), idle("b"))
    client.delete(*(unit_key(keys, f"unit-{number}") for number in range(1_200)))
    client.zadd(keys.idle, {b"\xff": 0})
    client.hincrby(keys.header, "idle", 1)
    expire_all(store, 0)
    assert store.load(["b"]) == {}
    assert indexed(client, keys) == {}


def test_a_unit_that_waits_is_never_forgotten_whatever_the_index_says(client, keys, store, redis):
    put(store, waiting("a"), idle("b"))
    client.zadd(keys.idle, {"a": 0})
    store = redis.make().open(PARTITION)
    expire_all(store, 10)
    assert store.load(["a", "b"]).keys() == {"a"}
    assert indexed(client, keys) == {}


# The rebuild of the index.


def lose_index(client, keys, store, *units: str) -> None:
    """Leave these idle units, which no index lists, beside one that waits."""
    put(store, waiting("w"), *map(idle, units))
    client.delete(keys.idle)


@pytest.mark.parametrize("server", ["redis", "clustered"])
def test_an_index_of_many_units_is_rebuilt_whole(request, server):
    harness = request.getfixturevalue(server)
    keys, units = RedisKeys(harness.namespace, PARTITION), [f"unit-{number}" for number in range(5_000)]
    client = harness.client_of(keys)
    lose_index(client, keys, harness.make().open(PARTITION), *units)
    store = harness.make().open(PARTITION)
    assert indexed(client, keys) == {unit.encode(): 0 for unit in units}
    put(store, UnitChange("unit-1", b"later"), caught_up_ms=1)
    assert store.expire(-1, ()) == 0
    expire_all(store, 0)
    assert store.load([*units, "w"]).keys() == {"unit-1", "w"}


def test_a_rebuild_leaves_other_partitions_as_they_are(client, keys, store, redis):
    other, another = RedisKeys(redis.namespace, OTHER), redis.another()
    theirs = RedisKeys(another.namespace, PARTITION)
    lose_index(client, keys, store, "a")
    lose_index(client, other, redis.make().open(OTHER), "b")
    lose_index(client, theirs, another.make().open(PARTITION), "c")
    redis.make().open(PARTITION)
    assert indexed(client, keys) == {b"a": 0}
    assert client.exists(other.idle, theirs.idle) == 0
    another.clear_away()


def test_a_rebuild_that_was_cut_off_is_taken_up_by_the_next_takeover(client, keys, store, redis, monkeypatch):
    units = [f"unit-{number}" for number in range(50)]
    lose_index(client, keys, store, *units)
    monkeypatch.setattr(partition, "_INDEXED_AT_ONCE", 7)
    cut, calls = redis.make(), []
    run = cut._servers.run

    def run_and_fail(script, *arguments, **options):
        if script is partition.INDEX:
            calls.append(script)
            if len(calls) > 3:
                raise StorageUnavailable("it went away")
        return run(script, *arguments, **options)

    monkeypatch.setattr(cut._servers, "run", run_and_fail)
    with pytest.raises(StorageUnavailable, match="it went away"):
        cut.open(PARTITION)
    assert 0 < client.zcard(keys.idle) < 50
    assert client.hget(keys.header, "idle") == b""
    store = redis.make().open(PARTITION)
    assert len(indexed(client, keys)) == 50
    assert store.load(units).keys() == set(units)


def test_of_two_who_rebuild_at_the_same_moment_one_has_to_try_again(client, keys, store, redis, monkeypatch):
    lose_index(client, keys, store, "a", "b")
    first, second = redis.make(), redis.make()
    scan = first._servers.scan

    def be_overtaken(prefix):
        second.open(PARTITION)
        return scan(prefix)

    monkeypatch.setattr(first._servers, "scan", be_overtaken)
    with pytest.raises(StorageUnavailable, match="at the same time"):
        first.open(PARTITION)
    monkeypatch.undo()
    check = partial(indexed, client, keys)
    assert check() == {b"a": 0, b"b": 0}
    assert first.open(PARTITION).load("ab").keys() == {"a", "b"}
    assert check() == {b"a": 0, b"b": 0}


def test_a_partition_is_looked_through_once(client, keys, store, redis, monkeypatch):
    lose_index(client, keys, store, "a")
    redis.make().open(PARTITION)
    again = redis.make()
    monkeypatch.delattr(type(again._servers), "scan")
    put(again.open(PARTITION), idle("b"))
    redis.make().open(OTHER)
