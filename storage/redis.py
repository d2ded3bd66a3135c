"""Storage `redis`: a Redis server or a Redis Cluster. A commit is one script, so one round trip."""

from collections.abc import Callable, Sequence

from domain.record import Partition
from storage.ownership import succeeded
from storage.port import StorageRefused, StorageUnavailable
from storage.redis_header import FORMAT, StoredHeader, history_text, name, read_header, restore
from storage.redis_keys import RedisKeys
from storage.redis_partition import RedisPartitionStore
from storage.redis_promises import ServerWatch
from storage.redis_scripts import LOOK, PROBE, TAKE, Verdict
from storage.redis_servers import RedisServers
from storage.redis_settings import RedisSettings


class RedisStorage:
    """Opens partitions. Nothing is connected before the first `open`. Used from one thread."""

    def __init__(self, settings: RedisSettings, random_token: Callable[[], str]) -> None:
        self._settings = settings
        self._random_token = random_token
        self._servers = RedisServers(settings.place, settings.timeout_ms)
        self._watch = ServerWatch(self._servers)
        self._opened: dict[Partition, RedisPartitionStore] = {}

    @property
    def is_durable(self) -> bool:
        return True

    def open(self, partition: Partition) -> RedisPartitionStore:
        keys = RedisKeys(self._settings.namespace, partition)
        self._watch.warn_of(keys.header)
        stored = self._look(keys)
        header = succeeded(stored.header, self._random_token())
        seen = (stored.header.token, stored.header.commit) if stored.header else ("", "")
        arguments = (*seen, FORMAT, header.token, history_text(header))
        verdict, now, *_ = self._servers.run(TAKE, [keys.header, keys.unit_prefix], arguments)
        if verdict != Verdict.OK.encode():
            raise StorageUnavailable(f"somebody else took {keys.tag} at the same moment")
        store = RedisPartitionStore(self._servers, keys, header, now, self._settings.span, self._settings.wait_replicas)
        self._opened[partition] = store
        return store

    def inspect(self, partition: Partition) -> Sequence[str]:
        """All that may hinder `open`, and what the server may forget, a sentence each; changes nothing.

        Raises: as `open`.
        """
        keys = RedisKeys(self._settings.namespace, partition)
        shortcomings = self._watch.look_at(keys.header)
        self._look(keys)
        self._servers.run(PROBE, [keys.header, keys.unit_prefix], ())
        return shortcomings

    def release(self, partition: Partition) -> None:
        self._opened.pop(partition, None)

    def close(self) -> None:
        self._servers.close()

    def _look(self, keys: RedisKeys) -> StoredHeader:
        _, _, flat, waiting, pending = self._servers.run(LOOK, [keys.header, keys.waiting, keys.pending], ())
        stored = read_header(keys.header, flat)
        if (stored.waiting, stored.pending) != (waiting, pending):
            counted = f"{stored.waiting} units wait and {stored.pending} notifications are pending"
            problem = f"it says that {counted}, but there are {waiting} and {pending}: somebody deleted keys"
            raise StorageRefused(name(keys.header), f"{problem}; {restore(keys.header)}")
        return stored
