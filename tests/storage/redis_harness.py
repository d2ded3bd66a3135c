"""Redis storages that share one namespace of a real server or cluster."""

from collections.abc import Callable, Iterator
from itertools import count
from time import time
from typing import NamedTuple
from uuid import uuid4

import redis
from msgspec.structs import replace

from domain.clock import Instant
from domain.record import Partition
from servers.redis import RedisServer
from storage.port import Commit, PartitionStore, StorageUnavailable
from storage.redis import RedisStorage
from storage.redis_partition import RedisPartitionStore
from storage.redis_place import RedisLogin, read_place
from storage.redis_settings import GRACE_MS, RedisSettings
from tests.storage.contract import PARTITION, RETENTION_MS

LATER_MS = round(time() * 1_000) + 12 * 3_600_000
"""The contract's instants count from here: the server, whose clock is not ours to set, finds nothing of a test old."""

EXPIRED_PER_CALL = 1_000


def is_answered(act: Callable[[], object]) -> bool:
    try:
        act()
    except StorageUnavailable:
        return False
    return True


class OwnRedis(NamedTuple):
    """A server of one test, a client that looks into it, and storages on it that wait 300 ms for it."""

    server: RedisServer
    client: redis.Redis
    harness: "RedisHarness"

    def open(self, **changes: object) -> RedisPartitionStore:
        return self.harness.make(timeout_ms=300, **changes).open(PARTITION)


class LaterStore(RedisPartitionStore):
    """One whose instants count from `LATER_MS`."""

    def commit(self, commit: Commit) -> None:
        changes = tuple(replace(change, changed_at=change.changed_at + LATER_MS) for change in commit.changes)
        super().commit(replace(commit, changes=changes))


class LaterStorage(RedisStorage):
    """One whose `expire` does what the server itself does when the instants come that it was told."""

    def __init__(self, harness: "RedisHarness", settings: RedisSettings) -> None:
        super().__init__(settings, lambda: f"token-{next(harness.tokens)}")
        self._harness = harness

    def open(self, partition: Partition) -> RedisPartitionStore:
        store = super().open(partition)
        store.__class__ = LaterStore
        return store

    def expire(self, now: Instant) -> int:
        assert super().expire(now) == 0
        return self._harness.expire(now)


class RedisHarness:
    """Each `make` has connections of its own, as another process would have them; its settings are those, with changes."""

    def __init__(self, *clients: redis.Redis, url: str) -> None:
        self.namespace = f"test-{uuid4().hex[:12]}"
        self.clients = clients
        self.tokens = count()
        self.made: list[RedisStorage] = []
        self.url = url
        self.settings = RedisSettings(read_place(url, RedisLogin()), self.namespace, RETENTION_MS, RETENTION_MS)

    def another(self) -> "RedisHarness":
        """In a namespace of its own on the same servers."""
        return RedisHarness(*self.clients, url=self.url)

    def make(self, **changes: object) -> LaterStorage:
        storage = LaterStorage(self, replace(self.settings, **changes))
        self.made.append(storage)
        return storage

    def commit_unanswered(self, store: PartitionStore, commit: Commit) -> None:
        before = store.header
        store.commit(commit)
        store._header = before

    def expire(self, now: Instant) -> int:
        due = [(client, key) for client, key, at in self._expiries() if at - GRACE_MS - LATER_MS <= now][:EXPIRED_PER_CALL]
        for client in self.clients:
            deleting = client.pipeline(transaction=False)
            for owner, key in due:
                if owner is client:
                    deleting.delete(key)
            deleting.execute()
        return len(due)

    def close(self) -> None:
        for storage in self.made:
            storage.close()

    def clear_away(self) -> None:
        self.close()
        for client in self.clients:
            clearing = client.pipeline(transaction=False)
            for key in client.scan_iter(f"{{{self.namespace}:*", count=10_000):
                clearing.unlink(key)
            clearing.execute()

    def _expiries(self) -> Iterator[tuple[redis.Redis, bytes, int]]:
        """Keys that go by themselves, and when."""
        for client in self.clients:
            keys = list(client.scan_iter(f"{{{self.namespace}:*:unit:*", count=10_000))
            asking = client.pipeline(transaction=False)
            for key in keys:
                asking.pexpiretime(key)
            yield from ((client, key, at) for key, at in zip(keys, asking.execute(), strict=True) if at >= 0)
