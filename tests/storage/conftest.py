"""Fixtures of the tests of storages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.storage.embedded.storages import EmbeddedHarness, memory_directory

if TYPE_CHECKING:  # Its client takes a quarter of a second to import; the tests of other storages need not wait for that.
    from servers.redis import RedisCluster, RedisServer
    from tests.storage.redis.storages import OwnRedis, RedisHarness


@pytest.fixture
def embedded() -> Iterator[EmbeddedHarness]:
    with memory_directory() as directory:
        harness = EmbeddedHarness(Path(directory))
        yield harness
        harness.close()


@pytest.fixture
def embedded_on_disk(tmp_path: Path) -> Iterator[EmbeddedHarness]:
    harness = EmbeddedHarness(tmp_path)
    yield harness
    harness.close()


@pytest.fixture
def redis(redis_server: RedisServer) -> Iterator[RedisHarness]:
    """Storages on the shared server of the test run, in a namespace of their own."""
    from tests.storage.redis.storages import RedisHarness

    with closing(redis_server.client()) as client:
        harness = RedisHarness(client, url=redis_server.url)
        yield harness
        harness.clear_away()


@pytest.fixture
def clustered(redis_cluster: RedisCluster) -> Iterator[RedisHarness]:
    """Storages on the shared cluster of the test run, in a namespace of their own."""
    from tests.storage.redis.storages import RedisHarness

    with ExitStack() as stack:
        clients = [stack.enter_context(closing(node.client())) for node in redis_cluster.nodes]
        harness = RedisHarness(*clients, url=redis_cluster.url)
        yield harness
        harness.clear_away()


@pytest.fixture
def own_redis(own_server: Callable[..., Any]) -> Iterator[Callable[..., OwnRedis]]:
    """Makes servers that the test may kill, pause and configure: `own_redis(append="everysec")`; `kind` is a
    subclass of the server.
    """
    from servers.redis import RedisServer, RedisSettings
    from tests.storage.redis.storages import OwnRedis, RedisHarness

    with ExitStack() as stack:

        def make(kind: type[RedisServer] = RedisServer, **settings: Any) -> OwnRedis:
            server = own_server(kind, RedisSettings(**settings)).start()
            client = stack.enter_context(closing(server.client()))
            harness = RedisHarness(client, url=server.url.partition("?")[0])
            stack.callback(harness.close)
            return OwnRedis(server, client, harness)

        yield make
