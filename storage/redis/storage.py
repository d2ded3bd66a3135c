"""Storage `redis`: a Redis server or a Redis Cluster. A commit is one script, so one round trip."""

import logging
from collections.abc import Callable, Iterator, Sequence

from resequencer.errors import OwnershipLost
from resequencer.record import Partition
from resequencer.storage_port import Answer, StorageRefused, StorageUnavailable
from storage.fencing import succeeded
from storage.redis.header import FORMAT, RedisKeys, StoredHeader, history_text, name, read_header, restore
from storage.redis.partition import RedisPartitionStore
from storage.redis.scripts import LOOK, PROBE, TAKE, Verdict
from storage.redis.servers import RedisServers, ServerFacts
from storage.redis.settings import RedisSettings

_log = logging.getLogger("resequencer.storage")

_HEALED = "the service detects the loss and heals it, and notifications may then repeat, marked possible-duplicate"


class ServerWatch:
    """Checks servers. Warns once for each server, and again after it was restarted or replaced."""

    def __init__(self, servers: RedisServers) -> None:
        self._servers = servers
        self._warned_of: set[str] = set()

    def look_at(self, key: bytes) -> Sequence[str]:
        """Return the data that the server of this key may lose, in sentences.

        Raises:
            StorageRefused: The server may evict. A loss of the last commits is detected, but a single evicted key is not.
            StorageUnavailable: The server did not answer.
        """
        return self._look_at(key, self._servers.facts(key))

    def warn_of(self, key: bytes) -> None:
        """Log the same. Raises: as `look_at`."""
        facts = self._servers.facts(key)
        texts = self._look_at(key, facts)
        run = facts.get("run_id", "")
        if run not in self._warned_of:
            for text in texts:
                _log.warning("%s", text)
            self._warned_of.add(run)

    def _look_at(self, key: bytes, facts: ServerFacts) -> Sequence[str]:
        server = self._servers.name(key)
        refuse_eviction(server, facts)
        fsync = self._servers.find_setting(key, "appendfsync")
        return [f"{server}: {each}" for each in shortcomings(facts, fsync)]


def refuse_eviction(server: str, facts: ServerFacts) -> None:
    policy = facts.get("maxmemory_policy", "noeviction")
    if policy != "noeviction" and facts.get("maxmemory", "0") != "0":
        problem = f"its maxmemory-policy is {policy}: with its memory full it would evict units, which cannot be detected"
        raise StorageRefused(server, f"{problem}; set it to noeviction, or use a separate server for the service")


def shortcomings(facts: ServerFacts, fsync: str | None) -> Iterator[str]:
    """Yield what the server may lose, in sentences. `fsync` is its appendfsync, None if the user may not read it."""
    if facts.get("aof_enabled") == "0":
        yield f"it keeps no append-only file (appendonly no): a restart loses all data since the last snapshot; {_HEALED}"
    elif fsync is None:
        yield "it is unknown whether it syncs its append-only file with every commit: the user may not read appendfsync"
    elif fsync != "always":
        span = "the last second or two" if fsync == "everysec" else "all data that the system had not written yet"
        yield f"appendfsync is {fsync}: a crash of its machine may lose {span}; {_HEALED}"
    policy = facts.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        yield f"maxmemory-policy is {policy}: once a maxmemory is set it would evict units; set it to noeviction"


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
