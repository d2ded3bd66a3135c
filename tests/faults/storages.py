"""The storages that a service under faults may have, and what each of them may forget when its server dies."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from harness.processes.operated_service import NOTIFICATION, RESEQUENCER

from servers.infinispan import InfinispanServer
from servers.redis import RedisServer, RedisSettings
from servers.server import Server

CACHE = "resequencer-state"
_IN_MEMORY = {"local-cache": {"encoding": {"media-type": "application/octet-stream"}}}
_REDIS = f"{NOTIFICATION}.storage.redis"
_INFINISPAN = f"{NOTIFICATION}.storage.infinispan"


class Storage(NamedTuple):
    """`port` is the name of the server's port. `forgets` is whether the server loses data when its process dies."""

    overrides: tuple[str, ...]
    kind: Callable[..., Server] | None = None
    settings: object = None
    port: str = ""
    url: str = ""
    forgets: bool = False

    def overrides_on(self, port: int | None) -> list[str]:
        """Return the overrides for a service that finds the server at this port."""
        return [*self.overrides, *([self.url.format(port)] if self.url else [])]


def prepare(name: str, server: Any) -> None:
    """Prepare the running server as an operator does before the service starts."""
    if name == "infinispan in memory":
        server.create_cache(CACHE, _IN_MEMORY)


def _redis(settings: RedisSettings, *, forgets: bool = False) -> Storage:
    overrides = (f"{RESEQUENCER}.storage-type=redis", f"{_REDIS}.timeout=2s")
    return Storage(overrides, RedisServer, settings, "redis", f'{_REDIS}.url="redis://127.0.0.1:{{}}/0"', forgets)


def _infinispan(*, forgets: bool = False) -> Storage:
    overrides = (f"{RESEQUENCER}.storage-type=infinispan", f"{_INFINISPAN}.timeout=2s", f"{_INFINISPAN}.cache={CACHE}")
    return Storage(overrides, InfinispanServer, None, "infinispan", f'{_INFINISPAN}.url="http://127.0.0.1:{{}}"', forgets)


STORAGES: Mapping[str, Storage] = {
    "none": Storage((f"{RESEQUENCER}.storage-type=none", f"{RESEQUENCER}.acknowledge=when-handled")),
    "redis": _redis(RedisSettings(append="always")),
    "redis everysec": _redis(RedisSettings(append="everysec"), forgets=True),
    "infinispan": _infinispan(),
    "infinispan in memory": _infinispan(forgets=True),
}
