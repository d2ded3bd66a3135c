"""Writes a fixture: what the code of today leaves in each storage, in files and on Kafka, and what it tells of it.

    PYTHONPATH=tests .venv/bin/python -m compatibility.make unreleased

writes the folder `unreleased` beside this. Make one whenever what is written has changed, with the code that changed it, and
add its folder to `FIXTURES` in `restoring.py`; until then `test_today.py` fails. The newest may be written anew as long as its
version was not released. `baseline` never is (docs/decisions/0049-the-baseline.md), nor is one of a released version: what it
holds was written by the code of its time, and that is the point of it.

Each storage goes through the same history (`history.py`) on a real server. Beside it there is `service/`, the directory of a
real service that was stopped while units waited, and `kafka.json`, the positions of a partition as a real broker kept them.
"""

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from compatibility.history import PARTITIONS, Wrap, live, new_service
from compatibility.kafka_position import keep_positions
from compatibility.keeping import CACHE, IN_MEMORY, NAMESPACE, end_clearing, keep_infinispan, redis_document, told_by, write_json
from harness.processes.operated_service import OperatedService

from servers.infinispan import InfinispanServer
from servers.kafka import KafkaServer
from servers.redis import RedisServer
from storage.infinispan.rest_client import InfinispanRest
from storage.infinispan.storage import InfinispanStorage, LayoutSettings, ServerSettings
from storage.redis.settings import RedisLogin, RedisSettings, read_place
from storage.redis.storage import RedisStorage
from tests.storage.infinispan.storages import SMALL

FILES = ("in", "out", "archive", "suspects")
_NOT_KEPT = shutil.ignore_patterns("*.lock", "positions.json")
"""The positions name the storage's tokens, which differ."""


def make(fixture: Path) -> None:
    fixture.mkdir()
    reports: dict[str, dict[str, Any]] = {}
    with TemporaryDirectory() as temporary:
        directory = Path(temporary)
        reports["embedded"] = _written(directory / "embedded", None, lambda: None)
        assert not (directory / "embedded" / "state.db-wal").exists(), "all of it is in one file"
        shutil.copyfile(directory / "embedded" / "state.db", fixture / "state.db")
        for name in FILES:
            shutil.copytree(directory / "embedded" / name, fixture / "files" / name, ignore=_NOT_KEPT)
        with _running(RedisServer(directory / "redis-server")) as server:
            reports["redis"] = _written_on_redis(server, directory / "redis", fixture / "redis.json")
        with _running(InfinispanServer(directory / "infinispan-server")) as server:
            reports["infinispan"] = _written_on_infinispan(server, directory / "infinispan", fixture / "infinispan.json")
        for storage in reports:
            _see_that_files_are_the_same(directory / storage, fixture / "files")
            (fixture / "positions").mkdir(exist_ok=True)
            shutil.copyfile(directory / storage / "out" / "positions.json", fixture / "positions" / f"{storage}.json")
        with _running(KafkaServer(directory / "kafka-server")) as server:
            keep_positions(server, directory / "kafka.db", fixture / "kafka.json")
        _keep_service(directory / "service", fixture / "service")
    write_json(fixture / "told.json", _notifications_by_all(reports))


def _notifications_by_all(reports: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """They have written the same history; only the tokens in their headers differ."""
    headers = {name: {number: each.pop("header") for number, each in partitions.items()} for name, partitions in reports.items()}
    assert all(partitions == reports["embedded"] for partitions in reports.values())
    return {"headers": headers, "partitions": reports["embedded"]}


def _written(directory: Path, storage: Wrap | None, keep: Callable[[], None]) -> dict[str, Any]:
    """What the storage's last owner tells before it is killed; what lies there is kept once it is dead."""
    service = new_service(directory, storage)
    live(service)
    reported = told_by(service)
    service.kill()
    keep()
    return reported


def _written_on_redis(server: RedisServer, directory: Path, kept: Path) -> dict[str, Any]:
    settings = RedisSettings(read_place(server.url, RedisLogin()), NAMESPACE, timeout_ms=5_000, wait_replicas=0)
    with closing(server.client()) as client:
        return _written(
            directory,
            lambda service: RedisStorage(settings, lambda: f"token-{next(service._tokens)}"),
            lambda: write_json(kept, redis_document(client, NAMESPACE)),
        )


def _written_on_infinispan(server: InfinispanServer, directory: Path, kept: Path) -> dict[str, Any]:
    server.create_cache(CACHE, IN_MEMORY)
    settings, layout = ServerSettings(server.url, CACHE), LayoutSettings(NAMESPACE, **SMALL)
    made: list[InfinispanStorage] = []

    def storage(service: Any) -> InfinispanStorage:
        made.append(InfinispanStorage(layout, InfinispanRest(settings), lambda: f"token-{next(service._tokens)}"))
        return made[-1]

    def keep() -> None:
        end_clearing(made[-1])
        keep_infinispan(server, counters, PARTITIONS, kept)

    with closing(InfinispanRest(settings)) as counters:
        return _written(directory, storage, keep)


def _keep_service(directory: Path, kept: Path) -> None:
    """One that runs as nothing else was configured: drained while two units wait, with what it had told of them and of others."""
    service = OperatedService(directory)
    try:
        service.tell("done", 2, 1)
        service.tell("waits", 4, 3)
        service.tell("waits-with-some", 1, 3)
        service.append(b"no envelope")
        service.start_and_wait()
        service.wait_for("done", 1, 2)
        service.wait_for("waits-with-some", 1)
        service.wait_for_report(lambda report: report.units.waiting == 2, "all is read")
        assert service.stop() == 0
    finally:
        service.clear_away()
    for name in ("in", "out"):
        shutil.copytree(service.run_directory / name, kept / name, ignore=shutil.ignore_patterns("lock"))
    shutil.copyfile(service.run_directory / "state.db", kept / "state.db")


def _see_that_files_are_the_same(directory: Path, kept: Path) -> None:
    for each in kept.rglob("*.jsonl"):
        assert (directory / each.relative_to(kept)).read_bytes() == each.read_bytes(), each


@contextmanager
def _running(server: Any) -> Iterator[Any]:
    try:
        yield server.start()
    finally:
        server.kill()


if __name__ == "__main__":
    make(Path(__file__).parent / sys.argv[1])
