"""What a fixture holds, brought back into each storage."""

import shutil
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from compatibility.keeping import (
    IN_MEMORY,
    NAMESPACE,
    kept_values,
    restore_infinispan,
    restore_redis,
)

from resequencer.storage_port import Storage
from storage.embedded.storage import EmbeddedSettings, EmbeddedStorage
from storage.infinispan.storage import InfinispanStorage, LayoutSettings, ServerSettings
from tests.storage.infinispan.memory import MemoryCache, MemoryServer
from tests.storage.infinispan.storages import SMALL

FIXTURES = ("baseline", "unreleased")
"""Oldest first. `baseline` is what version 0.1.0 wrote on 2026-11-27 (docs/decisions/0049-the-baseline.md); `unreleased` is
written anew with each change until the next version."""


class Left(NamedTuple):
    """What lies in a storage. Each `make` is as another process would have it; `name` is that of its headers in `told.json`."""

    name: str
    make: Callable[[], Storage]


_tokens = count()


def token() -> str:
    return f"new-token-{next(_tokens)}"


def embedded(kept: Path, ask: Callable[[str], Any], directory: Path) -> Left:
    state_file = directory / "state.db"
    shutil.copyfile(kept / "state.db", state_file)
    return Left("embedded", lambda: EmbeddedStorage(EmbeddedSettings(state_file), token))


def redis(kept: Path, ask: Callable[[str], Any], directory: Path) -> Left:
    harness = ask("redis_namespace")
    restore_redis(kept / "redis.json", harness.clients[0], harness.namespace)
    return Left("redis", harness.make)


def infinispan(kept: Path, ask: Callable[[str], Any], directory: Path) -> Left:
    from storage.infinispan.rest_client import InfinispanRest  # Here, for its client takes a fifth of a second to import.

    server, name = ask("infinispan"), ask("fresh_name")("written-before")
    server.create_cache(name, IN_MEMORY)
    settings = ServerSettings(server.url, name, timeout_ms=60_000)
    with closing(InfinispanRest(settings)) as cache:
        restore_infinispan(kept / "infinispan.json", cache)
    layout = LayoutSettings(NAMESPACE, **SMALL)
    return Left("infinispan", lambda: InfinispanStorage(layout, InfinispanRest(settings), token))


def infinispan_in_memory(kept: Path, ask: Callable[[str], Any], directory: Path) -> Left:
    """With bounds as they are shipped, which are not those that it was written with."""
    server = MemoryServer()
    server.values, server.counters = kept_values(kept / "infinispan.json")
    return Left("infinispan", lambda: InfinispanStorage(LayoutSettings(NAMESPACE), MemoryCache(server), token))


WAYS = {"embedded": embedded, "redis": redis, "infinispan": infinispan, "infinispan-in-memory": infinispan_in_memory}
"""By the ids of the tests' parameters."""
