"""A real Redis: which data it keeps, which users it accepts, and a cluster of three nodes."""

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
import redis
from harness.waiting import wait_until

from servers.redis import RedisCluster, RedisServer, RedisSettings

pytestmark = pytest.mark.slow

OwnServer = Callable[..., Any]


@pytest.mark.parametrize("append", ["always", "everysec"])
def test_a_server_with_a_log_has_its_keys_again_after_a_kill(own_server: OwnServer, append: str) -> None:
    server = own_server(RedisServer, RedisSettings(append=append)).start()
    assert server.url == kept_over_a_kill(server)
    with closing(server.client()) as client:
        assert client.get("key") == b"value"


def test_a_server_without_a_log_comes_back_empty(own_server: OwnServer) -> None:
    server = own_server(RedisServer, RedisSettings(append="none")).start()
    kept_over_a_kill(server)
    with closing(server.client()) as client:
        assert client.get("key") is None


def test_a_client_that_does_not_know_the_user_or_the_certificate_is_kept_out(own_server: OwnServer) -> None:
    server = own_server(RedisServer, RedisSettings(user="writer", password="secret", tls=True)).start()
    with closing(server.client()) as client:
        assert client.set("key", "value")
    with pytest.raises(redis.AuthenticationError):
        ping(server.url.replace("secret", "wrong"))
    with pytest.raises(redis.AuthenticationError):
        ping(server.url.replace("writer:secret@", ""))
    with pytest.raises(redis.ConnectionError):
        ping(server.url.partition("?")[0])


def test_a_full_server_refuses_what_would_need_more(own_server: OwnServer) -> None:
    server = own_server(RedisServer, RedisSettings(max_memory="2mb")).start()
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        fill(server)


def test_a_replica_has_what_its_master_has(own_server: OwnServer) -> None:
    master = own_server(RedisServer).start()
    replica = own_server(RedisServer, RedisSettings(replica_of=master.ports["redis"])).start()
    with closing(master.client()) as writing, closing(replica.client()) as reading:
        writing.set("key", "value")
        assert writing.wait(1, 10_000) == 1
        assert reading.get("key") == b"value"


def test_a_replica_is_kept_out_of_a_master_with_a_user_that_it_does_not_share(own_server: OwnServer) -> None:
    private = RedisSettings(user="writer", password="secret")
    master = own_server(RedisServer, private).start()
    other_owner = own_server(RedisServer, RedisSettings(replica_of=master.ports["redis"]))
    other_owner.launch()
    wait_until(
        lambda: "MASTER aborted" in other_owner.log.read_text() or "NOAUTH" in other_owner.log.read_text(), "it was refused"
    )
    assert not other_owner.is_ready()


def test_a_cluster_spreads_its_keys_over_three_masters(redis_cluster: RedisCluster, fresh_name: Callable[[str], str]) -> None:
    name = fresh_name("key")
    with closing(redis.RedisCluster.from_url(redis_cluster.url)) as client:
        for number in range(100):
            client.set(f"{name}-{number}", number)
        assert [client.get(f"{name}-{number}") for number in range(100)] == [str(number).encode() for number in range(100)]
    for node in redis_cluster.nodes:
        with closing(node.client()) as client:
            assert client.dbsize() > 0


def test_a_cluster_is_whole_again_when_a_killed_master_is_back(own_server: OwnServer) -> None:
    cluster = own_server(RedisCluster).start()
    with closing(redis.RedisCluster.from_url(cluster.url)) as client:
        client.set("key", "value")
        cluster.nodes[1].kill()
        assert not cluster.is_ready()
        cluster.start()
        assert client.get("key") == b"value"
    cluster.stop()
    assert not any(node.is_running for node in cluster.nodes)


def kept_over_a_kill(server: RedisServer) -> str:
    """Return the address before the kill; afterwards the server runs again."""
    address = server.url
    with closing(server.client()) as client:
        client.set("key", "value")
    server.kill()
    assert not server.is_ready()
    server.start()
    return address


def fill(server: RedisServer) -> None:
    with closing(server.client()) as client:
        for number in range(100):
            client.set(f"key-{number}", bytes(100_000))


def ping(url: str) -> None:
    with closing(redis.Redis.from_url(url)) as client:
        client.ping()
