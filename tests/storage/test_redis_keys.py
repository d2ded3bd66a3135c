"""What lies in Redis under a partition's keys: what expires and what never does, what is missed, and what a commit costs."""

import pytest
from waiting import wait_until

from domain.errors import OwnershipLost
from storage import redis_partition
from storage.port import Pending, StashEntry, StorageRefused, StorageUnavailable, UnitChange
from storage.redis import RedisStorage
from storage.redis_keys import RedisKeys
from storage.redis_settings import GRACE_MS
from tests.storage.contract import PARTITION, RETENTION_MS, WAITS, following, idle, put, waiting
from tests.storage.redis_harness import LATER_MS

pytestmark = pytest.mark.slow


@pytest.fixture
def client(redis):
    return redis.clients[0]


@pytest.fixture
def keys(redis):
    return RedisKeys(redis.namespace, PARTITION)


@pytest.fixture
def store(redis):
    return redis.make().open(PARTITION)


@pytest.fixture
def filled(store):
    put(store, waiting("a"), idle("b"), added=(Pending(1, b"one"),), highest_number=1)
    return store


def unit_key(keys, unit: str) -> bytes:
    return keys.units([unit])[0]


# What expires.


def test_only_idle_units_expire_whoever_owns_the_partition(client, keys, filled, redis):
    redis.close()
    expiring = {key for key in client.scan_iter(f"{keys.tag}*") if client.pttl(key) != -1}
    assert expiring == {unit_key(keys, "b")}


def test_a_unit_stays_for_the_retention_and_a_grace_after_its_change_and_for_ever_while_it_waits(client, keys, store):
    key = unit_key(keys, "a")
    put(store, idle("a", 500))
    assert client.pexpiretime(key) == LATER_MS + 500 + RETENTION_MS + GRACE_MS
    put(store, waiting("a", 600))
    assert client.pexpiretime(key) == -1
    put(store, idle("a", 700))
    assert client.pexpiretime(key) == LATER_MS + 700 + RETENTION_MS + GRACE_MS


def test_a_worker_whose_clock_is_late_lets_no_unit_expire_early(client, keys, redis):
    storage = RedisStorage(redis.settings, lambda: "token")
    put(storage.open(PARTITION), idle("a", changed_at=0))
    storage.close()
    assert RETENTION_MS + GRACE_MS - 60_000 < client.pttl(unit_key(keys, "a")) <= RETENTION_MS + GRACE_MS


def test_the_server_itself_forgets_an_idle_unit(client, keys, redis, monkeypatch):
    monkeypatch.setattr(redis_partition, "GRACE_MS", -RETENTION_MS + 50)
    storage = RedisStorage(redis.settings, lambda: "token")
    put(storage.open(PARTITION), idle("a"), waiting("b"))
    storage.close()
    wait_until(lambda: not client.exists(unit_key(keys, "a")), "it expires")
    assert client.exists(unit_key(keys, "b"))


def test_a_unit_in_its_grace_is_not_remembered_and_begins_anew(client, keys, store):
    put(store, UnitChange("a", b"old", payment_data=b"old"), idle("b"))
    client.pexpire(unit_key(keys, "a"), GRACE_MS - 1)
    client.pexpire(unit_key(keys, "b"), GRACE_MS + 60_000)
    assert store.load(["a", "b"]).keys() == {"b"}
    assert not client.exists(unit_key(keys, "a"))
    put(store, UnitChange("a", b"new"))
    assert store.load(["a"])["a"].payment_data is None


# Who takes over, and an owner who was away.


def test_of_two_who_take_over_at_the_same_moment_one_has_to_try_again(redis, monkeypatch):
    first, second = redis.make(), redis.make()
    look = first._look

    def look_and_be_overtaken(keys):
        stored = look(keys)
        second.open(PARTITION)
        return stored

    monkeypatch.setattr(first, "_look", look_and_be_overtaken)
    with pytest.raises(StorageUnavailable, match="at the same moment"):
        first.open(PARTITION)
    monkeypatch.undo()
    assert len(first.open(PARTITION).header.history) == 1


def test_an_owner_who_heard_nothing_for_long_takes_the_partition_over_again(redis, store):
    commit = put(store, waiting("a"))
    store._heard_at -= redis.settings.span.silence_ms + 1
    for act in (
        lambda: put(store, idle("b")),
        lambda: store.commit(commit),
        lambda: store.load(["a"]),
        store.waiting,
        store.pending,
    ):
        with pytest.raises(OwnershipLost, match="nothing was heard"):
            act()
    again = redis.make().open(PARTITION)
    assert again.load(["a", "b"]).keys() == {"a"}
    assert again.header.commit == 0


def test_an_owner_of_a_quiet_partition_is_kept_in_touch(redis):
    storage = redis.make()
    store = storage.open(PARTITION)
    store._heard_at -= redis.settings.span.silence_ms - 10_000
    before = store._heard_at
    storage.expire(0)
    assert store._heard_at > before + 10_000


def test_what_was_released_or_lost_is_not_asked_for_any_more(redis, client):
    storage, other = redis.make(), redis.make()
    storage.open(PARTITION)
    other.open(PARTITION)
    storage.expire(0)
    storage.expire(0)
    assert storage._opened == {}
    other.release(PARTITION)
    assert other._opened == {}


# What is missed.


@pytest.mark.parametrize("part", ["header", "waiting", "pending"])
def test_a_part_that_somebody_deleted_is_missed_at_the_next_takeover(client, keys, filled, redis, part):
    client.delete(getattr(keys, part))
    with pytest.raises(StorageRefused, match=r"somebody deleted keys; restore the server from a copy") as refused:
        redis.make().open(PARTITION)
    assert keys.tag in str(refused.value)


def test_deleting_all_of_a_partition_begins_it_anew(client, keys, filled, redis):
    client.delete(*client.scan_iter(f"{keys.tag}*"))
    assert redis.make().open(PARTITION).header.is_empty


def test_a_unit_that_waits_but_is_not_there_is_refused_and_one_that_never_was_is_not(client, keys, filled):
    client.delete(unit_key(keys, "a"))
    assert filled.load(["b", "c"]).keys() == {"b"}
    with pytest.raises(StorageRefused, match="something waits in it, but it is not there"):
        filled.load(["c", "a"])


def test_a_newer_format_is_refused_and_left_as_it_is(client, keys, filled, redis):
    client.hset(keys.header, "format", 2)
    before = client.hgetall(keys.header)
    with pytest.raises(StorageRefused, match="its format is 2, this version of the service knows 1; start the newer version"):
        redis.make().open(PARTITION)
    assert client.hgetall(keys.header) == before


@pytest.mark.parametrize(
    ("field", "value"), [("format", "x"), ("format", "0"), ("commit", ""), ("history", "[["), ("token", None)]
)
def test_a_damaged_header_is_refused(client, keys, filled, redis, field, value):
    client.hdel(keys.header, field) if value is None else client.hset(keys.header, field, value)
    with pytest.raises(StorageRefused, match="restore the server from a copy"):
        redis.make().open(PARTITION)


@pytest.mark.parametrize("part", ["header", "waiting", "pending"])
def test_a_key_of_another_program_is_refused(client, keys, redis, part):
    client.set(getattr(keys, part), "theirs")
    with pytest.raises(StorageRefused, match=r"use a storage\.namespace of your own"):
        redis.make().open(PARTITION)
    assert client.get(getattr(keys, part)) == b"theirs"


# What it costs.


def calls(client) -> int:
    """How many commands the server ran, those inside scripts too."""
    return sum(each["calls"] for each in client.info("commandstats").values())


def test_a_commit_and_a_load_cost_by_what_they_touch_and_a_takeover_by_what_waits(own_redis):
    _, client, harness = own_redis(append="none")
    spent = []
    # The first round is for the server to learn the scripts.
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
    monkeypatch.setattr(redis_partition, "_MOST_BYTES", 1_000)
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
