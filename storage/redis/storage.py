"""Storage `redis`: a Redis server or a Redis Cluster. A commit is one script, so one round trip."""

import logging
from collections.abc import Callable, Sequence

from resequencer.errors import OwnershipLost
from resequencer.record import Partition
from resequencer.storage_port import Answer, StorageRefused, StorageUnavailable
from storage.fencing import succeeded
from storage.redis.durability import ServerWatch
from storage.redis.header import FORMAT, StoredHeader, history_text, name, read_header, restore
from storage.redis.keys import RedisKeys
from storage.redis.partition import RedisPartitionStore
from storage.redis.scripts import LOOK, PROBE, TAKE, Verdict
from storage.redis.servers import RedisServers
from storage.redis.settings import RedisSettings

_log = logging.getLogger("resequencer.storage")


class RedisStorage:
    """Opens partitions. Nothing is connected before the first `open`. Used from one thread."""

    def __init__(self, settings: RedisSettings, random_token: Callable[[], str]) -> None:
        self._settings = settings
        self._random_token = random_token
        self._servers = RedisServers(settings.place, settings.timeout_ms)
        self._watch = ServerWatch(self._servers)

    @property
    def is_durable(self) -> bool:
        return True

    def connect(self) -> None:
        self._servers.facts(self._settings.namespace.encode())

    def open(self, partition: Partition) -> RedisPartitionStore:
        keys = RedisKeys(self._settings.namespace, partition)
        self._watch.warn_of(keys.header)
        stored, indexed = self._look(keys)
        is_whole = stored.idle == indexed
        header = succeeded(stored.header, self._random_token())
        seen = (stored.header.token, stored.header.commit) if stored.header else ("", "")
        arguments = (*seen, FORMAT, header.token, history_text(header), indexed if is_whole else "")
        verdict, *_ = self._servers.run(TAKE, [keys.header, keys.unit_prefix], arguments)
        if verdict != Verdict.OK.encode():
            raise _overtaken(keys)
        store = RedisPartitionStore(self._servers, keys, header, self._settings.wait_replicas)
        if not is_whole:
            _index(keys, stored.idle, indexed, store)
        return store

    def preflight(self, partition: Partition) -> Sequence[str]:
        """Check everything that may prevent `open`. Return what the server may lose, in sentences. Changes nothing.

        Raises: as `open`.
        """
        keys = RedisKeys(self._settings.namespace, partition)
        shortcomings = self._watch.look_at(keys.header)
        self._look(keys)
        self._servers.run(PROBE, [keys.header, keys.unit_prefix], ())
        return shortcomings

    def side_by_side(self, calls: Sequence[Callable[[], Answer]]) -> Sequence[Callable[[], Answer]]:
        """Make none of them yet: there is one connection."""
        return calls

    def give_up(self, partition: Partition) -> None:
        """Do nothing: no partition is kept in the process."""

    def close(self) -> None:
        self._servers.close()

    def _look(self, keys: RedisKeys) -> tuple[StoredHeader, int]:
        """Read and check the header. Return it with the number of units in the index of idle units."""
        _, flat, waiting, pending, idle = self._servers.run(LOOK, [keys.header, keys.waiting, keys.pending, keys.idle], ())
        stored = read_header(keys.header, flat)
        if (stored.waiting, stored.pending) != (waiting, pending):
            problem = (
                f"keys were deleted: it counts {stored.waiting} waiting and {stored.pending} pending entries, "
                f"but {waiting} and {pending} exist"
            )
            raise StorageRefused(name(keys.header), f"{problem}; {restore(keys.header)}")
        return stored, idle


def _index(keys: RedisKeys, counted: int | None, indexed: int, store: RedisPartitionStore) -> None:
    """Add missing idle units to the index. Until this ends, the header has no count of them, and the next `open` repeats it."""
    why = "the last rebuild of the index of idle units was interrupted"
    if counted is not None:
        why = f"idle units in the index: {indexed} instead of {counted}, because keys were deleted by hand"
    _log.warning("%s: %s; rebuilding the index from all keys of the server, which may take a while", keys.tag, why)
    try:
        joined = store.index_idle_units()
    except OwnershipLost as error:
        raise _overtaken(keys) from error
    _log.warning("%s: idle units added to the index: %d; their retention begins now", keys.tag, joined)


def _overtaken(keys: RedisKeys) -> StorageUnavailable:
    return StorageUnavailable(f"another worker opened {keys.tag} at the same time")
