"""What a Redis server promises about durability.

The service warns at the takeover, refuses settings whose losses would go unnoticed, and waits for replicas.
"""

import logging

import pytest
from harness.waiting import wait_until

from resequencer.errors import OwnershipLost
from resequencer.record import Partition
from resequencer.storage_port import Pending, StorageRefused, StorageUnavailable, UnitChange
from servers.redis import RedisServer
from tests.storage.contract import WAITS, following, idle, put
from tests.storage.redis.storages import is_answered

pytestmark = pytest.mark.slow


@pytest.fixture
def warnings(caplog):
    caplog.set_level(logging.WARNING, "resequencer.storage")

    def texts():
        found = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return found

    return texts


def test_a_server_that_syncs_every_commit_is_not_remarked_on(own_redis, warnings):
    own_redis(append="always").open()
    assert warnings() == []


@pytest.mark.parametrize(("append", "text"), [("everysec", "appendfsync is everysec"), ("none", "keeps no append-only file")])
def test_a_server_that_may_forget_is_warned_of_once_in_its_life(own_redis, warnings, append, text):
    own = own_redis(append=append)
    storage = own.harness.make()
    for number in range(3):
        storage.open(Partition("topic", number))
    (warning,) = warnings()
    assert text in warning
    assert "possible-duplicate" in warning
    own.server.restart()
    with pytest.raises(StorageUnavailable):
        storage.open(Partition("topic", 0))
    storage.open(Partition("topic", 0))
    assert len(warnings()) == 1


def test_a_server_whose_settings_may_not_be_read_is_warned_of(own_redis, warnings):
    own = own_redis()
    own.client.execute_command("ACL", "SETUSER", "default", "-config")
    own.open()
    (warning,) = warnings()
    assert "it is unknown whether it syncs" in warning


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_server_that_would_evict_is_refused_with_the_remedy(own_redis, policy):
    own = own_redis(max_memory="100mb", max_memory_policy=policy)
    with pytest.raises(StorageRefused, match=f"maxmemory-policy is {policy}.*set it to noeviction"):
        own.open()
    assert own.client.dbsize() == 0
    own.client.config_set("maxmemory-policy", "noeviction")
    own.open()


def test_a_server_that_cannot_get_full_yet_is_only_warned_of(own_redis, warnings):
    own_redis(max_memory_policy="allkeys-lru").open()
    (warning,) = warnings()
    assert "once a maxmemory is set" in warning


def test_a_commit_counts_only_when_so_many_replicas_have_it(own_redis):
    own = own_redis()
    replica = own_redis(RedisServer, replica_of=own.server.ports["redis"])
    zombie = own.open(wait_replicas=1, timeout_ms=1_000)
    store = own.open(wait_replicas=1, timeout_ms=1_000)
    first = following(store, UnitChange("a", b"first", WAITS))
    wait_until(lambda: is_answered(lambda: store.commit(first)), "the replica keeps up")
    second = following(store, UnitChange("a", b"second"), added=(Pending(1, b"one"),), highest_number=1)
    replica.server.pause()
    # Also on a new connection, which has written nothing to wait for.
    for _ in range(3):
        with pytest.raises(StorageUnavailable, match=r"0 of 1 replicas \(wait-replicas\)"):
            store.commit(second)
        own.client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        with pytest.raises(StorageUnavailable):
            store.commit(second)
    assert store.header.commit == 1
    with pytest.raises(OwnershipLost):
        wait_until(lambda: is_answered(lambda: put(zombie, idle("zombie"))), "it hears that it is none")
    replica.server.resume()
    wait_until(lambda: is_answered(lambda: store.commit(second)), "the replica keeps up again")
    assert store.load(["a"])["a"].state == b"second"
    assert replica.client.hget(f"{{{own.harness.namespace}:IPF_PROCESSING_DATA:0}}:header", "commit") == b"2"


def test_what_was_acknowledged_by_a_replica_outlives_the_master(own_redis):
    own = own_redis(append="none")
    replica = own_redis(RedisServer, append="none", replica_of=own.server.ports["redis"])
    store = own.open(wait_replicas=1)
    change = UnitChange("a", b"state", WAITS, data=b"data")
    first = following(store, change, added=(Pending(1, b"one"),), highest_number=1)
    wait_until(lambda: is_answered(lambda: store.commit(first)), "the replica keeps up")
    own.server.kill()
    replica.client.replicaof("NO", "ONE")
    promoted = own.harness.settings.namespace
    taken = replica.open(namespace=promoted)
    assert dict(taken.header.history)[store.header.token] == 1
    assert taken.load(["a"])["a"].data == b"data"
    assert taken.pending() == [Pending(1, b"one")]
    assert taken.waiting() == [("a", WAITS)]
    put(taken, idle("a"))
