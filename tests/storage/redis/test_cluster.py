"""A real Redis Cluster: a node dies, a slot moves, and the nodes are found."""

import pytest
from harness.waiting import wait_until
from redis.crc import key_slot

from resequencer.record import Partition
from resequencer.storage_port import StorageRefused, StorageUnavailable
from servers.redis import RedisCluster
from storage.redis.header import RedisKeys
from storage.redis.settings import RedisLogin, read_place
from tests.storage.contract import WAITS, following, idle, put, waiting
from tests.storage.redis.storages import RedisHarness, is_answered

pytestmark = pytest.mark.slow


class OwnCluster:
    """A cluster that the test may kill and reshape, and storages on it."""

    def __init__(self, cluster: RedisCluster, clients) -> None:
        self.cluster = cluster
        self.clients = clients
        self.harness = RedisHarness(*clients, url=cluster.url)

    def partition_on(self, node: int) -> Partition:
        """Return a partition whose keys are on this node."""
        slots = range(16_384 * node // 3, 16_384 * (node + 1) // 3)
        numbered = (Partition("topic", number) for number in range(1_000))
        return next(each for each in numbered if self.slot(each) in slots)

    def slot(self, partition: Partition) -> int:
        return key_slot(RedisKeys(self.harness.namespace, partition).header)

    def move(self, partition: Partition, source: int, target: int, *, at_most: int = 1_000_000, only: bytes = b"") -> bool:
        """Move the partition's slot to another node as resharding does, or move only so many keys with this prefix.
        Return whether the whole slot moved.
        """
        slot = self.slot(partition)
        ids = [client.execute_command("CLUSTER", "MYID").decode() for client in self.clients]
        self.clients[target].execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
        self.clients[source].execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
        found = self.clients[source].execute_command("CLUSTER", "GETKEYSINSLOT", slot, 1_000_000)
        keys = [key for key in found if key.startswith(only)][:at_most]
        port = self.cluster.nodes[target].ports["redis"]
        self.clients[source].execute_command("MIGRATE", "127.0.0.1", port, "", 0, 5_000, "KEYS", *keys)
        if self.clients[source].execute_command("CLUSTER", "COUNTKEYSINSLOT", slot):
            return False
        for client in self.clients:
            client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[target])
        return True


@pytest.fixture
def own(own_server):
    cluster = own_server(RedisCluster).start()
    clients = [node.client() for node in cluster.nodes]
    own = OwnCluster(cluster, clients)
    yield own
    own.harness.close()
    for client in clients:
        client.close()


def test_all_keys_of_a_partition_lie_in_one_slot_and_partitions_on_all_nodes(own):
    storage = own.harness.make()
    for node in range(3):
        put(storage.open(own.partition_on(node)), waiting("a{b}"), idle("{}"))
        assert own.clients[node].dbsize() == 6


def test_a_node_that_dies_stops_its_own_partitions_and_comes_back_with_every_commit(own):
    own.clients[0].config_set("cluster-require-full-coverage", "no")
    storage = own.harness.make(timeout_ms=5_000)
    stores = [storage.open(own.partition_on(node)) for node in range(3)]
    for store in stores:
        put(store, waiting("a"))
    own.cluster.nodes[1].kill()
    second = following(stores[1], waiting("b"))
    assert not is_answered(lambda: stores[1].commit(second))
    put(stores[0], waiting("b"))
    own.cluster.start()
    wait_until(lambda: is_answered(lambda: stores[1].commit(second)), "it is back")
    assert {unit for unit, _ in stores[1].waiting()} == {"a", "b"}
    wait_until(lambda: is_answered(stores[2].waiting), "the cluster is whole")
    assert stores[2].waiting() == [("a", WAITS)]


def test_a_cluster_with_a_dead_node_is_found_by_another_that_the_url_names(own):
    ports = [node.ports["redis"] for node in own.cluster.nodes]
    place = read_place("redis://" + ",".join(f"127.0.0.1:{port}" for port in ports), RedisLogin())
    own.clients[1].config_set("cluster-require-full-coverage", "no")
    own.clients[2].config_set("cluster-require-full-coverage", "no")
    own.cluster.nodes[0].kill()
    put(own.harness.make(place=place, timeout_ms=5_000).open(own.partition_on(1)), idle("a"))


def test_a_slot_that_moves_to_another_node_is_followed(own):
    partition = own.partition_on(0)
    store = own.harness.make().open(partition)
    put(store, waiting("a"), idle("b"))
    second = following(store, waiting("c"))
    assert not own.move(partition, 0, 2, at_most=2)
    assert not is_answered(lambda: store.commit(second))
    assert own.move(partition, 0, 2)
    wait_until(lambda: is_answered(lambda: store.commit(second)), "it is found")
    assert store.load(["a", "b", "c"]).keys() == {"a", "b", "c"}
    assert own.clients[2].dbsize() == 7
    assert own.clients[0].dbsize() == 0
    assert (store.expire(0, ()), store.expire(0, ())) == (1, 0)


def test_a_slot_that_moves_while_the_index_is_rebuilt_leaves_no_idle_unit_behind(own):
    partition = own.partition_on(0)
    keys = RedisKeys(own.harness.namespace, partition)
    units = [f"unit-{number}" for number in range(40)]
    put(own.harness.make().open(partition), *map(idle, units))
    own.clients[0].zrem(keys.idle, *units[1:])  # One stays, as an interrupted rebuild leaves it.
    storage = own.harness.make()
    scan = storage._servers.scan
    storage._servers.scan = lambda prefix: (own.move(partition, 0, 2, at_most=25, only=keys.unit_prefix), scan(prefix))[1]
    with pytest.raises(StorageUnavailable, match="slot is being moved"):
        storage.open(partition)
    storage._servers.scan = scan
    with pytest.raises(StorageUnavailable):
        storage.open(partition)
    assert own.move(partition, 0, 2)
    wait_until(lambda: is_answered(lambda: storage.open(partition)), "it is found")
    assert storage.open(partition).load(units).keys() == set(units)
    assert own.clients[2].zcard(keys.idle) == 40


def test_a_database_other_than_the_first_is_refused_by_a_cluster(own):
    place = read_place(own.cluster.url.replace("/0", "/1"), RedisLogin())
    with pytest.raises(StorageRefused, match="a cluster has only 0"):
        own.harness.make(place=place).open(Partition("topic", 0))


def test_several_hosts_are_refused_where_there_is_no_cluster(redis, redis_server):
    port = redis_server.ports["redis"]
    place = read_place(f"redis://127.0.0.1:{port},localhost:{port}", RedisLogin())
    with pytest.raises(StorageRefused, match="the url names several hosts"):
        redis.make(place=place).open(Partition("topic", 0))
