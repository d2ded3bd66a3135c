"""A real Infinispan: which data it keeps, and which users it accepts."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from harness.waiting import DEADLINE_SECONDS

from servers.infinispan import InfinispanServer, InfinispanSettings

pytestmark = pytest.mark.slow

OwnServer = Callable[..., Any]

BYTES = {"encoding": {"media-type": "application/octet-stream"}}
ON_DISK = {"persistence": {"file-store": {"preload": True, "purge": False, "data": {"sync-writes": True}}}}
COUNTER = {"strong-counter": {"initial-value": 7, "storage": "PERSISTENT"}}


def test_what_is_put_into_a_cache_is_there(infinispan: InfinispanServer, fresh_name: Callable[[str], str]) -> None:
    cache = fresh_name("cache")
    infinispan.create_cache(cache, {"local-cache": BYTES})
    put(infinispan, cache)
    assert find(infinispan, cache) == b"value"


def test_a_kill_costs_a_cache_in_memory_its_entries_and_one_on_disk_none(own_server: OwnServer) -> None:
    server = own_server(InfinispanServer).start()
    server.create_cache("memory", {"local-cache": BYTES})
    server.create_cache("disk", {"local-cache": BYTES | ON_DISK})
    put(server, "memory")
    put(server, "disk")
    with server.client() as client:
        client.post("/rest/v2/counters/counter", json=COUNTER).raise_for_status()
        client.post("/rest/v2/counters/counter", params={"action": "increment"}).raise_for_status()
    address = server.url
    server.kill()
    assert not server.is_ready()
    server.start()
    assert server.url == address
    assert find(server, "memory") is None
    assert find(server, "disk") == b"value"
    with server.client() as client:
        assert client.get("/rest/v2/counters/counter").text == "8"


def test_only_users_are_let_in_by_basic_and_by_digest(own_server: OwnServer) -> None:
    server = own_server(InfinispanServer, InfinispanSettings(users={"app": "secret"})).start()
    server.create_cache("cache", {"local-cache": BYTES})
    put(server, "cache")
    caches = f"{server.url}/rest/v2/caches"
    assert httpx.get(caches, auth=httpx.BasicAuth("app", "secret"), timeout=DEADLINE_SECONDS).status_code == 200
    assert httpx.get(caches, auth=httpx.DigestAuth("app", "secret"), timeout=DEADLINE_SECONDS).status_code == 200
    assert httpx.get(caches, auth=httpx.BasicAuth("app", "wrong"), timeout=DEADLINE_SECONDS).status_code == 401
    assert httpx.get(caches, timeout=DEADLINE_SECONDS).status_code == 401


def put(server: InfinispanServer, cache: str) -> None:
    with server.client() as client:
        content = {"Content-Type": "application/octet-stream"}
        client.put(f"/rest/v2/caches/{cache}/key", content=b"value", headers=content).raise_for_status()


def find(server: InfinispanServer, cache: str) -> bytes | None:
    with server.client() as client:
        answer = client.get(f"/rest/v2/caches/{cache}/key")
    if answer.status_code == 404:
        return None
    return answer.raise_for_status().content
