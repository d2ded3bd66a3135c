"""The records of a topic are read from an archive in order and without Spark, and a job delivers them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.receivers import receiver
from harness.spark.archived_topics import ArchivedTopics
from pyspark.sql import SparkSession

from notification_service.jobs.errors import ArchiveRefused
from notification_service.jobs.topic_archive.local_reading import find_ends, records_in_order
from notification_service.wiring.delivery_sources import ArchiveFeed, ArchiveSpan
from servers.kafka import KafkaServer
from tests.notification_service.connectors.kafka.stage import KafkaStage


@pytest.fixture
def topics(spark: SparkSession, kafka: KafkaServer, tmp_path: Path) -> Iterator[ArchivedTopics]:
    stage = KafkaStage(kafka)
    yield ArchivedTopics(spark, stage, str(tmp_path / "archive"))
    stage.close()


def found(topics: ArchivedTopics, starts: dict[int, int], ends: dict[int, int]) -> dict[int, list[int]]:
    by_partition: dict[int, list[int]] = {}
    for piece in records_in_order(Path(topics.location), topics.stage.topics.input, starts, ends, 7):
        assert len(piece) <= 7
        by_partition.setdefault(piece[0].partition, []).extend(each.offset for each in piece)
    return by_partition


def test_the_records_of_each_partition_come_in_order_from_any_offset_also_after_a_compaction(topics: ArchivedTopics) -> None:
    for batch in range(3):
        for partition in range(2):
            topics.stage.send(
                *(b"%d" % number for number in range(10 * batch, 10 * batch + 10)), key=b"u%d" % partition, partition=partition
            )
        topics.archive()
    ends = dict(find_ends(Path(topics.location), topics.stage.topics.input))
    assert ends == {0: 30, 1: 30}
    for _ in range(2):
        assert found(topics, {}, ends) == {0: list(range(30)), 1: list(range(30))}
        assert found(topics, {0: 13, 1: 30}, ends) == {0: list(range(13, 30))}
        assert found(topics, {0: 5}, {0: 8}) == {0: [5, 6, 7]}
        topics.compact()


def test_a_job_delivers_what_the_archive_held_and_goes_on_where_it_was(topics: ArchivedTopics) -> None:
    headers = (("notification-id", b"N"),)
    topics.stage.send(b"1", b"2", b"3", key=b"u", headers=headers)
    topics.stage.send(b"4", key=b"v", partition=1)
    topics.archive()
    topic = topics.stage.topics.input
    span = ArchiveSpan(topics.location, topic, find_ends(Path(topics.location), topic))
    topics.stage.send(b"later", key=b"u")
    topics.archive()
    feed, positions, values = ArchiveFeed(span, receiver().select), dict[str, int](), []
    while not (portion := feed.read(positions, 2)).is_end:
        values += [(each.key, each.value, each.notification_id) for each in portion.items]
        positions |= portion.positions
        feed = ArchiveFeed(span, receiver().select) if len(values) == 2 else feed
    assert portion.seals
    assert values == [("u", b"1", "N"), ("u", b"2", "N"), ("u", b"3", "N"), ("v", b"4", None)]
    none = ArchiveFeed(ArchiveSpan(topics.location, topic, span.ends, until=1), receiver().select)
    assert none.read({}, 10).items == []


def test_a_missing_batch_is_reported(topics: ArchivedTopics, tmp_path: Path) -> None:
    for value in (b"1", b"2"):
        topics.stage.send(value, key=b"a")
        topics.archive()
    (tmp_path / "archive" / "batches" / "batch=1-1").rename(tmp_path / "elsewhere")
    with pytest.raises(ArchiveRefused, match="batch 1 is missing"):
        found(topics, {}, {0: 2})
