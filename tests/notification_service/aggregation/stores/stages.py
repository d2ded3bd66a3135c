"""Stores for tests: in files, and on topics of a real broker. Both take commands, and return what came of them."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from harness.steady import steady
from harness.waiting import DEADLINE_SECONDS, wait_ms, wait_until

from guardian.headers import MEMBER
from guardian.ports import TransportUnavailable
from notification_service.aggregation.core import Slot
from notification_service.aggregation.files import FileStore, ValuesFile
from notification_service.aggregation.port import Store
from notification_service.aggregation.runner import StoreRunner
from notification_service.connectors.files.settings import FileSettings
from notification_service.connectors.files.sink import FileTransport
from notification_service.connectors.line_format import Line, decode_line, encode_line
from tests.notification_service.aggregation.stores.sums import Sums

if TYPE_CHECKING:  # Kafka's client takes long to import, which the tests of files need not wait for.
    from notification_service.aggregation.kafka_store import KafkaStore
    from notification_service.connectors.kafka.settings import KafkaSettings
    from tests.notification_service.connectors.kafka.stage import KafkaStage


class Clock:
    """The time in ms, as the test sets it."""

    def __init__(self) -> None:
        self.ms = 1_000

    def now(self) -> int:
        return self.ms


class Out:
    """A record of the output."""

    def __init__(self, key: bytes, value: bytes, headers: Mapping[str, bytes]) -> None:
        self.key, self.value, self.headers = key.decode(), value, headers

    @property
    def head(self) -> dict[str, Any]:
        return dict(json.loads(self.value))


class StoreStage(Protocol):
    clock: Clock

    def open_store(self, slot: int = 0) -> Store: ...

    def send(self, key: str, member: str | None = None, **command: object) -> None: ...

    def completions(self) -> list[Out]: ...

    def dead_letters(self) -> list[Out]: ...

    def is_read(self, runner: StoreRunner) -> bool: ...

    def values(self, runner: StoreRunner, key: str) -> dict[str, bytes]:
        """Return the values of a key by member; the head's member is empty."""
        ...


def make_runner(stage: StoreStage, slot: int = 0, open_store: Callable[[], Store] | None = None) -> StoreRunner:
    return StoreRunner(
        "sums", Sums(), open_store or (lambda: stage.open_store(slot)), steady(stage.clock), lambda ms: wait_ms(ms / 20)
    )


def run_until_read(stage: StoreStage, *runners: StoreRunner) -> None:
    """Let the runners take turns until all commands that are there were applied, by one of them."""

    def is_read() -> bool:
        for each in runners:
            each.turn()
        return any(stage.is_read(each) for each in runners)

    wait_until(is_read, "all commands are applied")


class FileStage:
    def __init__(self, directory: Path) -> None:
        self.clock = Clock()
        self._directory = directory
        (directory / "in").mkdir()

    def open_store(self, slot: int = 0) -> FileStore:
        del slot
        settings = FileSettings("commands", self._directory / "in", self._directory / "out")
        return FileStore(FileTransport(settings, wait_ms), self._directory / "values.db")

    def send(self, key: str, member: str | None = None, partition: int = 0, **command: object) -> None:
        headers = () if member is None else ((MEMBER, member.encode()),)
        with (self._directory / "in" / f"partition-{partition}.jsonl").open("ab") as file:
            file.write(encode_line(Line(json.dumps(command).encode(), key.encode(), headers)))

    def completions(self) -> list[Out]:
        return self._lines("notifications")

    def dead_letters(self) -> list[Out]:
        return self._lines("dead-letters")

    def is_read(self, runner: StoreRunner) -> bool:
        files = list((self._directory / "in").iterdir())
        behind = runner.report().behind
        return len(behind) == len(files) and not any(behind.values()) and sum(each.stat().st_size for each in files) == sum(
            runner._read_to.values()
        )  # fmt: skip

    def values(self, runner: StoreRunner, key: str) -> dict[str, bytes]:
        del runner
        with closing(ValuesFile(self._directory / "values.db", is_copy=False)) as file:
            return _values(file, key)

    def lose_values(self) -> None:
        """Delete the values, as a disk does that is replaced."""
        for each in self._directory.glob("values.db*"):
            each.unlink()

    def lose_positions(self) -> None:
        (self._directory / "out" / "positions.json").unlink()

    def back_up_values(self) -> None:
        with closing(sqlite3.connect(self._directory / "values.db")) as now, closing(sqlite3.connect(self._backup)) as backup:
            now.backup(backup)

    def restore_values(self) -> None:
        self.lose_values()
        shutil.copy(self._backup, self._directory / "values.db")

    @property
    def _backup(self) -> Path:
        return self._directory / "backup.db"

    def _lines(self, name: str) -> list[Out]:
        path = self._directory / "out" / f"{name}.jsonl"
        decoded = [decode_line(line) for line in path.read_bytes().splitlines()] if path.exists() else []
        return [Out(each.key or b"", each.value, dict(each.headers)) for each in decoded if isinstance(each, Line)]


class TopicStage:
    def __init__(
        self, topics: KafkaStage, directory: Path, values_partitions: int | None = None, policy: str = "compact"
    ) -> None:
        self.clock = Clock()
        self.topics = topics
        self.directory = directory
        self.values_topic = topics.topics.notifications.replace("out-", "values-")
        count = values_partitions or len(topics.partitions)
        topics.kafka.create_topics(self.values_topic, partitions=count, config={"cleanup.policy": policy})
        self._sent: dict[int, int] = {}

    def settings(self, slot: int = 0, consumer: Mapping[str, Any] = {}) -> KafkaSettings:
        from msgspec.structs import replace

        settings = self.topics.settings(slot, consumer)
        return replace(settings, topics=replace(settings.topics, values=self.values_topic))

    def open_store(self, slot: int = 0, consumer: Mapping[str, Any] = {}) -> KafkaStore:
        from notification_service.aggregation.kafka_store import KafkaStore

        return KafkaStore(self.settings(slot, consumer), self.directory / f"worker-{slot}", steady(self.clock))

    def send(self, key: str, member: str | None = None, **command: object) -> None:
        self.send_all([(key, member, command)])

    def send_all(self, commands: list[tuple[str, str | None, Mapping[str, object]]]) -> None:
        from kafka import KafkaProducer

        with closing(KafkaProducer(bootstrap_servers=self.topics.bootstrap)) as producer:
            futures = [
                producer.send(
                    self.topics.topics.input,
                    json.dumps(command).encode(),
                    key.encode(),
                    [] if member is None else [(MEMBER, member.encode())],
                )
                for key, member, command in commands
            ]
            for each in futures:
                found = each.get(timeout=DEADLINE_SECONDS)
                self._sent[found.partition] = found.offset + 1

    def completions(self) -> list[Out]:
        return [Out(each.key, each.value, dict(each.headers)) for each in self.topics.outputs()]

    def dead_letters(self) -> list[Out]:
        from guardian.ports import Channel

        return [Out(each.key, each.value, dict(each.headers)) for each in self.topics.outputs(Channel.DEAD_LETTERS)]

    def is_read(self, runner: StoreRunner) -> bool:
        """Return whether the group's positions have passed what was sent."""
        del runner
        for number, end in self._sent.items():
            found = None
            with suppress(TransportUnavailable):
                found = self.topics.committed(self.topics.partitions[number])
            if found is None or found.offset < end:
                return False
        return True

    def values(self, runner: StoreRunner, key: str) -> dict[str, bytes]:
        assert runner._store is not None
        found = [_values(each, key) for each in runner._store._owned.values()]  # type: ignore[attr-defined]
        return {member: body for values in found for member, body in values.items()}


def _values(file: ValuesFile, key: str) -> dict[str, bytes]:
    head = file.find(Slot(key))
    members = dict(file.member_values(key, "", 100_000))
    return members if head is None else {"": head.body, **members}
