"""What a Redis server promises by its configuration: whether it may forget or evict what it was told to keep."""

import logging
from collections.abc import Iterator, Sequence

from storage.port import StorageRefused
from storage.redis.servers import RedisServers, ServerFacts

_log = logging.getLogger("resequencer.storage")

_HEALED = "the loss is noticed and healed, and notifications may then repeat, marked possible-duplicate"


class ServerWatch:
    """Looks at servers. Warns of each once, and again when it was started anew or another one took its place."""

    def __init__(self, servers: RedisServers) -> None:
        self._servers = servers
        self._warned_of: set[str] = set()

    def look_at(self, key: bytes) -> Sequence[str]:
        """What the server that keeps this key may forget, a sentence each.

        Raises:
            StorageRefused: It would evict: a key that is missing among others is not noticed, as a loss of its tail is.
            StorageUnavailable: No answer.
        """
        return self._look_at(key, self._servers.facts(key))

    def warn_of(self, key: bytes) -> None:
        """The same, logged. Raises: as `look_at`."""
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
        problem = f"its maxmemory-policy is {policy}: with its memory full it would throw units away, which nobody would notice"
        raise StorageRefused(server, f"{problem}; set it to noeviction, or use a server of its own for the service")


def shortcomings(facts: ServerFacts, fsync: str | None) -> Iterator[str]:
    """A sentence each; `fsync` is its appendfsync, None if it may not be asked for."""
    if facts.get("aof_enabled") == "0":
        yield f"it keeps no append-only file (appendonly no): its process takes with it what no snapshot holds; {_HEALED}"
    elif fsync is None:
        yield "whether it syncs its append-only file with every commit (appendfsync always) cannot be seen: the user may not ask"
    elif fsync != "always":
        span = "the last second or two" if fsync == "everysec" else "whatever the system had not written yet"
        yield f"appendfsync is {fsync}: {span} may go with its machine; {_HEALED}"
    policy = facts.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        yield f"maxmemory-policy is {policy}: once a maxmemory is set it would throw units away; set it to noeviction"
