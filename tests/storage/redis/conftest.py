"""A partition in a namespace of its own on the server of the whole run, and its keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from storage.redis.header import RedisKeys
from tests.storage.contract import PARTITION

if TYPE_CHECKING:  # Its client takes a quarter of a second to import, which the tests without a server need not wait for.
    from redis import Redis

    from storage.redis.partition import RedisPartitionStore
    from tests.storage.redis.storages import RedisHarness


@pytest.fixture
def client(redis: RedisHarness) -> Redis:
    return redis.clients[0]


@pytest.fixture
def keys(redis: RedisHarness) -> RedisKeys:
    return RedisKeys(redis.namespace, PARTITION)


@pytest.fixture
def store(redis: RedisHarness) -> RedisPartitionStore:
    return redis.make().open(PARTITION)
