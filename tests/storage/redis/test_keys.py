"""The keys of a partition in Redis: takeovers, missing keys, and the number of commands of a commit."""

import pytest

from resequencer.errors import OwnershipLost
from resequencer.storage_port import Pending, StashEntry, StorageRefused, StorageUnavailable, UnitChange
from storage.redis import partition as redis_partition
from tests.storage.contract import PARTITION, WAITS, following, idle, put, waiting
from tests.storage.redis.storages import unit_key

pytestmark = pytest.mark.slow


@pytest.fixture
def filled(store):
    put(store, waiting("a"), idle("b"), added=(Pending(1, b"one"),), highest_number=1)
    return store


# Takeovers.


def test_of_two_who_take_over_at_the_same_moment_one_has_to_try_again(redis, monkeypatch):
    first, second = redis.make(), redis.make()
    look = first._look

    def look_and_be_overtaken(keys):
        stored = look(keys)
        second.open(PARTITION)
        return stored

    monkeypatch.setattr(first, "_look", look_and_be_overtaken)
    with pytest.raises(StorageUnavailable, match="at the same time"):
        first.open(PARTITION)
    monkeypatch.undo()
    assert len(first.open(PARTITION).header.history) == 1


# Missing keys.


@pytest.mark.parametrize("part", ["header", "waiting", "pending"])
def test_a_part_that_was_deleted_is_missed_at_the_next_takeover(client, keys, filled, redis, part):
    client.delete(getattr(keys, part))
    with pytest.raises(StorageRefused, match=r"keys were deleted: .* exist; restore the server from a backup") as refused:
        redis.make().open(PARTITION)
    assert keys.tag in str(refused.value)


def test_deleting_all_of_a_partition_begins_it_anew(client, keys, filled, redis):
    client.delete(*client.scan_iter(f"{keys.tag}*"))
    assert redis.make().open(PARTITION).header.is_empty


def test_a_unit_that_waits_but_is_not_there_is_refused_and_one_that_never_was_is_not(client, keys, filled):
    client.delete(unit_key(keys, "a"))
    assert filled.load(["b", "c"]).keys() == {"b"}
    with pytest.raises(StorageRefused, match="the unit has waiting envelopes, but its key is missing"):
        filled.load(["c", "a"])


def test_a_newer_format_is_refused_and_left_as_it_is(client, keys, filled, redis):
    client.hset(keys.header, "format", 3)
    before = client.hgetall(keys.header)
    with pytest.raises(StorageRefused, match="its format is 3, this version of the service knows 2; start the newer version"):
        redis.make().open(PARTITION)
    assert client.hgetall(keys.header) == before


@pytest.mark.parametrize(
    ("field", "value"), [("format", "x"), ("format", "1"), ("commit", ""), ("history", "[["), ("token", None)]
)
def test_a_damaged_header_is_refused(client, keys, filled, redis, field, value):
    client.hdel(keys.header, field) if value is None else client.hset(keys.header, field, value)
    with pytest.raises(StorageRefused, match="restore the server from a backup"):
        redis.make().open(PARTITION)


@pytest.mark.parametrize("part", ["header", "waiting", "pending", "idle"])
def test_a_key_of_another_program_is_refused(client, keys, redis, part):
    client.set(getattr(keys, part), "theirs")
    with pytest.raises(StorageRefused, match=r"use a storage\.namespace of your own"):
        redis.make().open(PARTITION)
    assert client.get(getattr(keys, part)) == b"theirs"


# Costs.


def calls(client) -> int:
    """Count the server's commands, with those inside scripts."""
    return sum(each["calls"] for each in client.info("commandstats").values())


def test_a_commit_and_a_load_cost_by_what_they_touch_and_a_takeover_by_what_waits(own_redis):
    _, client, harness = own_redis(append="none")
    spent = []
    # In the first round the server learns the scripts.
    for crowd in (0, 0, 20_000):
        storage = harness.another().make()
        store = storage.open(PARTITION)
        for first in range(0, crowd, 1_000):
            put(store, *(idle(f"idle-{number}") for number in range(first, first + 1_000)))
        put(store, *(waiting(f"unit-{number}") for number in range(100)))
        commit = following(store, *(waiting(f"unit-{number}") for number in range(50)), idle("c"))
        before = calls(client)
        store.commit(commit)
        store.load([f"unit-{number}" for number in range(50)])
        taken = storage.open(PARTITION)
        assert len(taken.waiting()) == 100
        assert taken.pending() == []
        spent.append(calls(client) - before)
        storage.close()
    assert spent[1] == spent[2]


def test_payment_data_and_stash_that_did_not_change_are_not_sent_again(own_redis):
    own = own_redis()
    store = own.open()
    stash = tuple(StashEntry(number, b"x" * 1_000) for number in range(100))
    put(store, UnitChange("a", b"", WAITS, stash, (), b"x" * 1_000_000))
    before = own.client.info("stats")["total_net_input_bytes"]
    put(store, UnitChange("a", b"", WAITS, (StashEntry(100, b"x" * 1_000),)))
    assert own.client.info("stats")["total_net_input_bytes"] - before < 3_000


def test_a_commit_that_no_server_would_take_is_refused_before_it_is_sent(store, monkeypatch):
    monkeypatch.setattr(redis_partition, "_MAX_BYTES", 1_000)
    with pytest.raises(StorageRefused, match=r"lower ingress\.batch-size"):
        put(store, idle("a"), UnitChange("b", b"x" * 1_000))
    put(store, idle("a"))
    assert store.load(["a", "b"]).keys() == {"a"}


def test_a_load_of_much_comes_in_several_answers(store, redis, monkeypatch):
    monkeypatch.setattr(redis_partition, "_BYTES_AT_ONCE", 10_000)
    monkeypatch.setattr(redis_partition, "_UNITS_AT_ONCE", 7)
    units = [f"unit-{number}" for number in range(50)]
    put(store, *(UnitChange(unit, unit.encode() * 500) for unit in units if unit != "unit-20"))
    loaded = store.load(units)
    assert {unit: each.state for unit, each in loaded.items()} == {u: u.encode() * 500 for u in units if u != "unit-20"}
    redis.make().open(PARTITION)
    with pytest.raises(OwnershipLost):
        store.load(units)
