"""The archive of a real broker's topics as Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from harness.spark.archived_topics import ArchivedTopics, Continuing, rows_of
from harness.waiting import wait_until
from kafka import KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions
from pyspark.sql import SparkSession

from notification_service.jobs.audit.scopes import topics_scope
from notification_service.jobs.errors import ArchiveRefused, ArchiveUnavailable, AuditRefused
from notification_service.jobs.spark.topics import read_topic
from notification_service.jobs.topic_archive.layout import Archive, Place
from servers.kafka import KafkaServer
from tests.notification_service.connectors.kafka.stage import KafkaStage

LONGEST_WAIT_SECONDS = 600


class Crash(Exception):
    """The process ends here."""


@pytest.fixture
def topics(spark: SparkSession, kafka: KafkaServer, tmp_path: Path) -> Iterator[ArchivedTopics]:
    stage = KafkaStage(kafka)
    yield ArchivedTopics(spark, stage, str(tmp_path / "archive"))
    stage.close()


def test_each_record_is_archived_once_as_it_is(topics: ArchivedTopics, tmp_path: Path) -> None:
    stage = topics.stage
    stage.send(b"first", b"", None, headers=[("h", b"1"), ("h", b"\xff"), ("empty", b"")])
    stage.send(b"\x00\xff", partition=1, key=None)
    stage.send_in_transaction(b"aborted", abort=True)
    stage.send_in_transaction(b"committed")
    stage.set_position(stage.partitions[0], 2)
    assert topics.archive() == 5
    topics.assert_archived()
    source = stage.topics.input
    assert [each[5] for each in topics.archived(source)] == [b"first", b"", None, b"committed", b"\x00\xff"]
    assert topics.snapshot().positions == {0: 2}
    assert topics.archive() == 0
    stage.send(b"later")
    assert topics.archive() == 1
    topics.assert_archived()

    read = read_topic(topics.spark, topics.settings.client, source, {0: 3, 1: 1})
    assert rows_of(read.collect()) == [each for each in topics.archived(source) if each[1] < 3]
    assert rows_of(read_topic(topics.spark, topics.settings.client, source).collect()) == topics.held(source)
    (directory, *_) = sorted((tmp_path / "archive" / "batches" / "batch=1-1").rglob("*.zstd.parquet"))
    assert directory.parent.parent.name == f"topic={source}"
    assert directory.parent.name.startswith("day=20")


def test_positions_that_move_though_nothing_is_sent_are_reported_too(topics: ArchivedTopics) -> None:
    assert topics.snapshot().positions is None
    assert topics.snapshot().ends == {}
    topics.stage.send(b"1", b"2")
    assert topics.archive() == 2
    assert topics.snapshot().positions == {}
    topics.stage.set_position(topics.stage.partitions[0], 2)
    assert topics.archive() == 0
    assert topics.snapshot().positions == {0: 2}
    assert topics.archived(topics.stage.topics.input) == topics.held(topics.stage.topics.input)
    assert topics.snapshot().ends[topics.stage.topics.input] == {0: 2, 1: 0}
    assert topics.snapshot().starts[topics.stage.topics.input] == {0: 0, 1: 0}


@pytest.mark.parametrize("is_late", [False, True])
def test_a_process_that_dies_before_or_after_a_batch_is_shown_loses_and_doubles_nothing(
    topics: ArchivedTopics, monkeypatch: pytest.MonkeyPatch, *, is_late: bool
) -> None:
    publish = Place.publish

    def die(place: Place, source: str, target: str) -> bool:
        if is_late:
            publish(place, source, target)
        raise Crash

    topics.stage.send(*(b"%d" % number for number in range(20)))
    monkeypatch.setattr(Place, "publish", die)
    with pytest.raises(ArchiveUnavailable, match="Crash"):
        topics.archive(batch_records=8)
    monkeypatch.setattr(Place, "publish", publish)
    topics.stage.send(b"more", partition=1)
    topics.archive(batch_records=8)
    topics.assert_archived()
    assert len(Archive(topics.spark, topics.location).spans()) > 2


def test_going_on_it_takes_what_comes_and_a_second_one_is_refused(topics: ArchivedTopics) -> None:
    first = Continuing(topics.archiver())
    first.start()
    source = topics.stage.topics.input
    topics.stage.send(b"1")
    wait_until(lambda: topics.archived(source), "it is archived", LONGEST_WAIT_SECONDS, 0.5)
    topics.stage.send(b"2")
    topics.stage.set_position(topics.stage.partitions[0], 1)
    wait_until(lambda: len(topics.archived(source)) == 2, "the next is archived", LONGEST_WAIT_SECONDS, 0.5)
    topics.archive()
    topics.stage.send(b"3")
    wait_until(lambda: not first.is_alive(), "the first one is refused", LONGEST_WAIT_SECONDS, 0.5)
    assert isinstance(first.failure, ArchiveRefused), first.failure
    assert "another process archives into it too" in str(first.failure)
    last = Continuing(topics.archiver())
    last.start()
    wait_until(lambda: len(topics.archived(source)) == 3, "the last is archived", LONGEST_WAIT_SECONDS, 0.5)
    last.end()
    assert last.failure is None
    topics.assert_archived()


def test_small_batches_become_one_while_a_program_reads_them(topics: ArchivedTopics, monkeypatch: pytest.MonkeyPatch) -> None:
    source = topics.stage.topics.input
    topics.stage.send(*(b"%d" % number for number in range(30)))
    topics.stage.set_position(topics.stage.partitions[0], 30)
    topics.archive(batch_records=10)
    held, archive = topics.held(source), Archive(topics.spark, topics.location)
    assert len(archive.spans()) == 3
    before = topics.snapshot()
    begun = before.read(source)

    def die(place: Place, source: str, target: str) -> bool:
        raise Crash

    publish = Place.publish
    monkeypatch.setattr(Place, "publish", die)
    with pytest.raises(Crash):
        topics.compact()
    monkeypatch.setattr(Place, "publish", publish)
    assert topics.archived(source) == held
    assert topics.compact().made == ["batch=1-3"]
    assert rows_of(begun.collect()) == held
    assert topics.archived(source) == held
    assert topics.snapshot().positions == {0: 30}
    assert len(archive.all_spans()) == 4
    topics.stage.send(b"after")
    topics.stage.set_position(topics.stage.partitions[0], 31)
    assert topics.archive() == 1
    assert topics.compact(grace_ms=3_600_000).removed == []
    assert (before.positions, before.ends[source]) == ({0: 30}, {0: 30, 1: 0})
    assert rows_of(before.read(source).collect()) == held
    assert (topics.snapshot().positions, topics.snapshot().ends[source][0]) == ({0: 31}, 31)
    assert topics.compact(min_batches=10).removed == ["batch=1-1", "batch=2-2", "batch=3-3"]
    topics.assert_archived()


def test_a_compaction_does_not_cover_up_that_a_file_is_gone(topics: ArchivedTopics, tmp_path: Path) -> None:
    topics.stage.send(*(b"%d" % number for number in range(20)))
    topics.archive(batch_records=5)
    next((tmp_path / "archive" / "batches" / "batch=1-1").rglob("*.parquet")).unlink()
    with pytest.raises(ArchiveRefused, match="batches 1 to 4 hold 15 records, but 20 were archived"):
        topics.compact()


def test_a_batch_that_is_gone_is_noticed_by_each_reader(topics: ArchivedTopics) -> None:
    topics.stage.send(*(b"%d" % number for number in range(20)))
    topics.archive(batch_records=10)
    archive = Archive(topics.spark, topics.location)
    archive.place.remove("batches/batch=1-1")
    with pytest.raises(ArchiveRefused, match="batch 1 is missing, but batch 2 is there"):
        topics.archived(topics.stage.topics.input)
    with pytest.raises(ArchiveRefused, match="batch 1 is missing"):
        topics.archive()


def test_a_file_that_is_gone_is_noticed_by_each_reader(topics: ArchivedTopics, tmp_path: Path) -> None:
    source = topics.stage.topics.input
    topics.stage.send(*(b"%d" % number for number in range(20)))
    topics.archive(batch_records=10)
    next((tmp_path / "archive" / "batches" / "batch=2-2").rglob("*.parquet")).unlink()
    problem = rf"batches/batch=2-2/topic={source} have 0 bytes, but [0-9,]+ were archived: restore them from a copy"
    with pytest.raises(ArchiveRefused, match=problem):
        topics.archived(source)


def test_a_partition_that_is_added_meanwhile_is_archived_from_its_beginning(topics: ArchivedTopics) -> None:
    stage, source = topics.stage, topics.stage.topics.input
    stage.send(b"0")
    archiving = Continuing(topics.archiver())
    archiving.start()
    wait_until(lambda: topics.archived(source), "it is archived", LONGEST_WAIT_SECONDS, 0.5)
    with closing(stage.kafka.admin()) as admin:
        admin.create_partitions({source: NewPartitions(3)})
    stage.send(b"1", b"2", b"3", partition=2)
    wait_until(lambda: len(topics.archived(source)) == 4, "the new partition is archived", LONGEST_WAIT_SECONDS, 0.5)
    archiving.end()
    assert topics.snapshot().starts[source] == {0: 0, 1: 0, 2: 0}
    stage.send(b"4", partition=2)
    assert topics.archive() == 1
    assert topics.snapshot().starts[source] == {0: 0, 1: 0, 2: 0}


def test_a_timestamp_that_spark_cannot_hold_is_named_with_the_remedy(topics: ArchivedTopics) -> None:
    """It has nanoseconds in place of milliseconds."""
    stage, source = topics.stage, topics.stage.topics.input
    any_instant = {"message.timestamp.after.max.ms": str(2**63 - 1)}
    with closing(stage.kafka.admin()) as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, source, any_instant)])
    stage.send(b"0")
    assert topics.archive() == 1
    with closing(KafkaProducer(bootstrap_servers=stage.bootstrap)) as producer:
        producer.send(source, b"1", partition=0, timestamp_ms=1_774_740_835_941_000_000).get(30)
    problem = f"{source}-0@1: its timestamp is later than 9223372036854775 ms, which Spark cannot hold"
    archiving = Continuing(topics.archiver())
    archiving.start()
    wait_until(lambda: not archiving.is_alive(), "it ends", LONGEST_WAIT_SECONDS, 0.5)
    assert isinstance(archiving.failure, ArchiveRefused), archiving.failure
    assert problem in str(archiving.failure)
    with pytest.raises(AuditRefused, match=problem):
        topics_scope(topics.spark, topics.kafka, lambda _: None)
