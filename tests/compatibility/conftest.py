"""Fixtures, each brought back into each storage."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from compatibility.restoring import FIXTURES, WAYS, Left

from resequencer.storage_port import Storage

STORAGES = (
    "embedded",
    "infinispan-in-memory",
    pytest.param("redis", marks=pytest.mark.slow),
    pytest.param("infinispan", marks=pytest.mark.slow),
)


@pytest.fixture(params=FIXTURES)
def kept(request: pytest.FixtureRequest) -> Path:
    """The directory of one of them."""
    return Path(__file__).parent / request.param


@pytest.fixture
def reported(kept: Path) -> dict[str, Any]:
    """What the code that wrote it reported of it."""
    return json.loads((kept / "told.json").read_text(encoding="utf-8"))


@pytest.fixture(params=STORAGES)
def left(kept: Path, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Left]:
    made: list[Storage] = []
    name, connect = WAYS[request.param](kept, request.getfixturevalue, tmp_path)

    def make() -> Storage:
        made.append(connect())
        return made[-1]

    yield Left(name, make)
    for each in made:
        each.close()


@pytest.fixture
def redis_namespace(redis_server: Any) -> Iterator[Any]:
    """On the server of the whole run, in a namespace of its own."""
    from tests.storage.redis.storages import RedisHarness  # Here, for its client takes a quarter of a second to import.

    with closing(redis_server.client()) as client:
        harness = RedisHarness(client, url=redis_server.url)
        yield harness
        harness.clear_away()
