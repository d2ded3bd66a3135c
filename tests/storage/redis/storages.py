"""Redis storages that share one namespace of a real server or cluster."""

from collections.abc import Callable
from itertools import count
from typing import NamedTuple
from uuid import uuid4

import redis
from msgspec.structs import replace
from redis.exceptions import MovedError

from resequencer.storage_port import Commit, PartitionStore, StorageUnavailable
from servers.redis import RedisServer
from storage.redis.header import RedisKeys
from storage.redis.partition import RedisPartitionStore
from storage.redis.settings import RedisLogin, RedisSettings, read_place
from storage.redis.storage import RedisStorage
from storage.redis.view import RedisStorageView
from tests.storage.contract import PARTITION


def unit_key(keys: RedisKeys, unit: str) -> bytes:
    return keys.units([unit])[0]


def is_answered(act: Callable[[], object]) -> bool:
    try:
        act()
    except StorageUnavailable:
        return False
    return True


class OwnRedis(NamedTuple):
    """A server for one test, a client that inspects it, and storages on it."""

    server: RedisServer
    client: redis.Redis
    harness: "RedisHarness"

    def open(self, **changes: object) -> RedisPartitionStore:
        return self.harness.make(**changes).open(PARTITION)


class RedisHarness:
    """Each `make` has connections of its own, as another process would; `changes` override its settings."""

    def __init__(self, *clients: redis.Redis, url: str) -> None:
        self.namespace = f"test-{uuid4().hex[:12]}"
        self.clients = clients
        self.tokens = count()
        self.made: list[RedisStorage] = []
        self.views: list[RedisStorageView] = []
        self.url = url
        self.settings = RedisSettings(read_place(url, RedisLogin()), self.namespace, timeout_ms=60_000, wait_replicas=0)

    def another(self) -> "RedisHarness":
        """Return a harness in another namespace on the same servers."""
        return RedisHarness(*self.clients, url=self.url)

    def make(self, **changes: object) -> RedisStorage:
        storage = RedisStorage(replace(self.settings, **changes), lambda: f"token-{next(self.tokens)}")
        self.made.append(storage)
        return storage

    def make_view(self, **changes: object) -> RedisStorageView:
        view = RedisStorageView(replace(self.settings, **changes))
        self.views.append(view)
        return view

    def dump(self) -> dict[bytes, bytes]:
        """The keys of the namespace with their values, as the server serializes them."""
        found = ((client, key) for client in self.clients for key in client.scan_iter(f"{{{self.namespace}:*"))
        return {key: client.dump(key) for client, key in found}

    def client_of(self, keys: RedisKeys) -> redis.Redis:
        """Return the client of the node that holds this partition."""
        return next(each for each in self.clients if _is_kept_at(each, keys))

    def commit_unanswered(self, store: PartitionStore, commit: Commit) -> None:
        before = store.header
        store.commit(commit)
        store._header = before

    def close(self) -> None:
        for each in (*self.made, *self.views):
            each.close()

    def clear_away(self) -> None:
        self.close()
        for client in self.clients:
            clearing = client.pipeline(transaction=False)
            for key in client.scan_iter(f"{{{self.namespace}:*", count=10_000):
                clearing.unlink(key)
            clearing.execute()


def _is_kept_at(client: redis.Redis, keys: RedisKeys) -> bool:
    try:
        client.exists(keys.header)
    except MovedError:
        return False
    return True
