"""Topics of a real broker, their archive, and the check whether the archive holds what the topics hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from threading import Thread
from typing import TYPE_CHECKING, Any

import msgspec
from harness.waiting import wait_ms

from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.jobs.spark.session import java_options
from notification_service.jobs.topic_archive.compaction import Compacted, CompactionSettings, Compactor
from notification_service.jobs.topic_archive.reading import ArchiveSnapshot
from notification_service.jobs.topic_archive.streaming import Archiver
from notification_service.jobs.topic_archive.writer import ArchiveSettings
from notification_service.supervision.system_clock import SystemClock
from tests.notification_service.connectors.kafka.stage import KafkaStage, read_to_end

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

Values = tuple[object, ...]


class ArchivedTopics:
    """The topics of a stage; `location` is the archive. `consumer` has other connection settings for the archiver, if given."""

    def __init__(self, spark: SparkSession, stage: KafkaStage, location: str, consumer: Mapping[str, str] = {}) -> None:
        self.spark = spark
        self.stage = stage
        self.location = location
        self.kafka: KafkaSettings = stage.settings(consumer=consumer)
        self.settings = ArchiveSettings(location, stage.topics.all, java_options(self.kafka.consumer), every_ms=200)

    def archive(self, tell: Callable[[str], None] = print, **settings: Any) -> int:
        """Archive everything that is there. Return how many records were new."""
        with closing(self.archiver(**settings)) as archiver:
            archiver.run(tell, lambda: False, is_continuous=False)
            return archiver.records

    def archiver(self, **settings: Any) -> Archiver:
        changed = msgspec.structs.replace(self.settings, **settings)
        return Archiver(self.spark, changed, self.kafka, SystemClock(), wait_ms)

    def compact(self, min_batches: int = 2, grace_ms: int = 0, **settings: int) -> Compacted:
        wanted = CompactionSettings(min_batches=min_batches, grace_ms=grace_ms, **settings)
        return Compactor(self.spark, self.location, SystemClock(), wanted).compact(print)

    def snapshot(self) -> ArchiveSnapshot:
        return ArchiveSnapshot(self.spark, self.location)

    def archived(self, topic: str) -> list[Values]:
        return rows_of(self.snapshot().read(topic).collect())

    def held(self, topic: str) -> list[Values]:
        """Return what a reader of committed records sees."""
        with closing(self.stage.reader()) as reader:
            return sorted(_as_row(record) for record in read_to_end(reader, topic))

    def assert_archived(self) -> None:
        for topic in self.stage.topics.all:
            assert self.archived(topic) == self.held(topic), topic


class Continuing(Thread):
    """Archives continuously, in a thread, until `end`. `failure` is the error that ended it before."""

    def __init__(self, archiver: Archiver) -> None:
        super().__init__(daemon=True)
        self.archiver = archiver
        self.failure: Exception | None = None
        self.lines: list[str] = []
        self._is_stopping = False

    def run(self) -> None:
        try:
            self.archiver.run(self.lines.append, lambda: self._is_stopping, is_continuous=True)
        except Exception as error:
            self.failure = error
        finally:
            self.archiver.close()

    def end(self) -> None:
        self._is_stopping = True
        self.join(600)
        assert not self.is_alive()


def rows_of(rows: list[Row]) -> list[Values]:
    return sorted(
        (
            row.partition,
            row.offset,
            row.timestamp,
            row.timestamp_type,
            _bytes(row.key),
            _bytes(row.value),
            tuple((header.key, bytes(header.value)) for header in row.headers),
        )
        for row in rows
    )


def _as_row(record: Any) -> Values:
    key, value = _bytes(record.key), _bytes(record.value)
    headers = tuple((name, bytes(value)) for name, value in record.headers)
    return record.partition, record.offset, record.timestamp, record.timestamp_type, key, value, headers


def _bytes(value: bytes | None) -> bytes | None:
    return None if value is None else bytes(value)
