"""What lies in a storage as text, and back: what an administrator would copy. Beside it, what a store tells of itself."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compatibility.history import PARTITIONS, UNITS
from harness.waiting import wait_until

from resequencer.storage_port import PartitionStore, StorageUnavailable
from storage.infinispan.cache import Cache

if TYPE_CHECKING:  # The clients take a second to import, which the tests without servers need not wait for.
    import httpx
    import redis
    from harness.service_under_test import Service

    from servers.infinispan import InfinispanServer
    from storage.infinispan.storage import InfinispanStorage

NAMESPACE = "written"
CACHE = "written"
IN_MEMORY = {"local-cache": {"encoding": {"media-type": "application/octet-stream"}}}


def end_clearing(storage: InfinispanStorage) -> None:
    """Let it delete what it had begun to: it does so beside its work."""
    for each in storage._stores.values():
        each._end_of_clearing()


# What a store tells


def told_of(store: PartitionStore, units: tuple[str, ...]) -> dict[str, Any]:
    """All that it tells, as JSON has it. The names stay what they are here, whatever the code calls them one day."""
    header = store.header
    return {
        "header": {
            "token": header.token,
            "commit": header.commit,
            "next_offset": header.next_offset,
            "highest_number": header.highest_number,
            "heal_offset": header.heal_offset,
            "history": [list(each) for each in header.history],
            "source": header.source,
            "caught_up_ms": header.caught_up_ms,
        },
        "units": {
            unit: {
                "state": text(each.state),
                "payment_data": None if each.data is None else text(each.data),
                "stash": [[entry.offset, text(entry.body)] for entry in each.stash],
            }
            for unit, each in sorted(store.load(units).items())
        },
        "waiting": {
            unit: {
                "wakes_at": each.wakes_at,
                "kind": each.kind.value,
                "since": each.since,
                "waits_for": each.waits_for,
                "strategy": each.strategy,
                "stashed": each.stashed,
                "stashed_bytes": each.stashed_bytes,
            }
            for unit, each in sorted(store.waiting())
        },
        "pending": [[each.number, text(each.body)] for each in store.pending()],
    }


def told_by(service: Service) -> dict[str, Any]:
    """What the stores of a service that went through its history tell, by the numbers of their partitions."""
    owned = service.cycle.partitions.owned
    return {str(each.number): told_of(owned[each].store, UNITS) for each in PARTITIONS}


def text(body: bytes) -> str:
    return b64encode(body).decode()


# Redis

_READERS: Mapping[str, Callable[..., object]] = {
    "hash": lambda client, key: [[_text(field), _text(value)] for field, value in sorted(client.hgetall(key).items())],
    "zset": lambda client, key: [[_text(member), score] for member, score in client.zrange(key, 0, -1, withscores=True)],
    "string": lambda client, key: _text(client.get(key)),
}
_WRITERS: Mapping[str, Callable[..., object]] = {
    "hash": lambda client, key, value: client.hset(key, mapping={_bytes(field): _bytes(each) for field, each in value}),
    "zset": lambda client, key, value: client.zadd(key, {_bytes(member): score for member, score in value}),
    "string": lambda client, key, value: client.set(key, _bytes(value)),
}


def redis_document(client: redis.Redis, namespace: str) -> list[dict[str, Any]]:
    """Each key of the namespace with its type and time to live; a byte that is no UTF-8 is written as a lone surrogate.

    As if the namespace were ours, which nothing but the keys knows.
    """
    keys = sorted(client.scan_iter(f"{{{namespace}:*"))
    return [_redis_key(client, key, namespace) for key in keys]


def restore_redis(kept: Path, client: redis.Redis, namespace: str) -> None:
    """Under another namespace."""
    for each in json.loads(kept.read_text(encoding="utf-8")):
        key = _bytes(each["key"]).replace(f"{{{NAMESPACE}:".encode(), f"{{{namespace}:".encode(), 1)
        _WRITERS[each["type"]](client, key, each["value"])
        if each["ttl_ms"] >= 0:
            client.pexpire(key, each["ttl_ms"])


def _redis_key(client: redis.Redis, key: bytes, namespace: str) -> dict[str, Any]:
    kind, name = client.type(key).decode(), _text(key).replace(namespace, NAMESPACE, 1)
    return {"key": name, "type": kind, "ttl_ms": client.pttl(key), "value": _READERS[kind](client, key)}


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


def _bytes(value: str) -> bytes:
    return value.encode("utf-8", "surrogateescape")


# Infinispan


def keep_infinispan(server: InfinispanServer, counters: Cache, partitions: tuple[tuple[str, int], ...], kept: Path) -> None:
    """What the cache holds, by its own list of keys, and the partitions' counters."""
    with server.client() as client:
        keys = sorted(_answer(client, f"/rest/v2/caches/{CACHE}?action=keys").json())
        values = {key: text(_answer(client, f"/rest/v2/caches/{CACHE}/{key}").content) for key in keys}
    names = [f"{NAMESPACE}:{topic}:{number}" for topic, number in partitions]
    write_json(kept, {"counters": {name: counters.find_counter(name) for name in names}, "values": values})


def kept_values(kept: Path) -> tuple[dict[str, bytes], dict[str, int]]:
    """Of the cache, and the counters."""
    document = json.loads(kept.read_text(encoding="utf-8"))
    return {key: b64decode(body) for key, body in document["values"].items()}, document["counters"]


def restore_infinispan(kept: Path, cache: Any) -> None:
    values, counters = kept_values(kept)
    for key, body in values.items():
        cache.put(key, body)
    for counter, value in counters.items():
        wait_until(partial(_is_created, cache, counter), "the counter")
        assert cache.compare_and_set(counter, 0, value)


def _is_created(cache: Cache, counter: str) -> bool:
    """A server that is asked for two counters at the same moment may refuse one."""
    with suppress(StorageUnavailable):
        cache.create_counter(counter)
        return True
    return False


def _answer(client: httpx.Client, path: str) -> httpx.Response:
    return client.get(path).raise_for_status()


def write_json(kept: Path, document: object) -> None:
    kept.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
