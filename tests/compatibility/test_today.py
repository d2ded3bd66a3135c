"""What the code of today writes is what the newest fixture holds: nothing changes unnoticed. If it was to, see `make.py`."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from compatibility.history import Wrap, live, new_service
from compatibility.keeping import NAMESPACE, end_clearing, kept_values, redis_document, told_by
from compatibility.restoring import FIXTURES
from harness.service_under_test import Service

from storage.infinispan.storage import InfinispanStorage, LayoutSettings
from tests.storage.infinispan.memory import MemoryCache, MemoryServer
from tests.storage.infinispan.storages import SMALL

NEWEST = Path(__file__).parent / FIXTURES[-1]


@pytest.fixture
def went_through(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """A service that went through its history, and holds its partitions still."""
    made: list[Service] = []

    def make(storage: Wrap | None = None) -> Service:
        made.append(new_service(tmp_path, storage))
        live(made[-1])
        return made[-1]

    yield make
    for each in made:
        each.kill()


def told_now(service: Service, storage: str) -> dict[str, Any]:
    """In the form of `told.json`, of one storage."""
    partitions = told_by(service)
    return {"headers": {storage: {number: each.pop("header") for number, each in partitions.items()}}, "partitions": partitions}


def told_then(storage: str) -> dict[str, Any]:
    reported = json.loads((NEWEST / "told.json").read_text(encoding="utf-8"))
    return reported | {"headers": {storage: reported["headers"][storage]}}


def dump(state_file: Path) -> list[str]:
    """Tables and rows, and by which numbers the file says what it is."""
    with closing(sqlite3.connect(f"file:{state_file}?mode=ro&immutable=1", uri=True)) as connection:
        numbers = [connection.execute(f"PRAGMA {name}").fetchone() for name in ("user_version", "application_id", "page_size")]
        return [*map(str, numbers), *connection.iterdump()]


def test_the_database_and_the_files_are_what_they_were(went_through: Callable[..., Service], tmp_path: Path) -> None:
    service = went_through()
    assert told_now(service, "embedded") == told_then("embedded")
    service.kill()
    assert dump(tmp_path / "state.db") == dump(NEWEST / "state.db")
    for each in [each for each in (NEWEST / "files").rglob("*") if each.suffix in {".json", ".jsonl", ".archived"}]:
        assert (tmp_path / each.relative_to(NEWEST / "files")).read_bytes() == each.read_bytes(), each
    assert (tmp_path / "out/positions.json").read_bytes() == (NEWEST / "positions/embedded.json").read_bytes()


def test_what_lies_in_infinispan_is_what_lay_there(went_through: Callable[..., Service]) -> None:
    server, layout, storages = MemoryServer(), LayoutSettings(NAMESPACE, **SMALL), list[InfinispanStorage]()

    def storage(service: Service) -> InfinispanStorage:
        storages.append(InfinispanStorage(layout, MemoryCache(server), lambda: f"token-{next(service._tokens)}"))
        return storages[-1]

    service = went_through(storage)
    end_clearing(storages[-1])
    assert (server.values, server.counters) == kept_values(NEWEST / "infinispan.json")
    assert told_now(service, "infinispan") == told_then("infinispan")


@pytest.mark.slow
def test_what_lies_in_redis_is_what_lay_there(went_through: Callable[..., Service], redis_namespace: Any) -> None:
    from storage.redis.storage import RedisStorage  # Here, for its client takes a quarter of a second to import.

    went_through(lambda made: RedisStorage(redis_namespace.settings, lambda: f"token-{next(made._tokens)}"))
    found = redis_document(redis_namespace.clients[0], redis_namespace.namespace)
    assert found == json.loads((NEWEST / "redis.json").read_text(encoding="utf-8"))
