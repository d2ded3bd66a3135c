"""The durability of a Redis server by its configuration: whether it may lose or evict stored data."""

import logging
from collections.abc import Iterator, Sequence

from resequencer.storage_port import StorageRefused
from storage.redis.servers import RedisServers, ServerFacts

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
