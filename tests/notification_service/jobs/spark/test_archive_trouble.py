"""Problems of the archiver: retention that is faster, a full disk, a disk that is not shared.

What was archived stays, and no half batch is visible.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from harness.spark.archived_topics import ArchivedTopics, Continuing
from harness.spark.written_elsewhere import write_elsewhere
from harness.waiting import wait_until
from kafka import TopicPartition
from pyspark.sql import DataFrameWriter, SparkSession

from notification_service.jobs.errors import ArchiveRefused, ArchiveUnavailable, NotShared
from notification_service.jobs.topic_archive.layout import Place
from notification_service.jobs.topic_archive.reading import ArchiveSnapshot
from servers.kafka import KafkaServer
from tests.notification_service.connectors.kafka.stage import KafkaStage

SMALL, LARGE = "size=2m", "size=64m"
RECORD_BYTES = 100_000
LONGEST_WAIT_SECONDS = 600


@pytest.fixture
def topics(spark: SparkSession, kafka: KafkaServer, tmp_path: Path) -> Iterator[ArchivedTopics]:
    stage = KafkaStage(kafka)
    yield ArchivedTopics(spark, stage, str(tmp_path / "archive"))
    stage.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", SMALL, "tmpfs", str(disk)], check=False, capture_output=True)
    if mounted.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def retain(stage: KafkaStage, first: int, partition: int = 0) -> None:
    """Delete the records before `first`, as the brokers' retention does."""
    with closing(stage.kafka.admin()) as admin:
        admin.delete_records({TopicPartition(stage.topics.input, partition): first})


def test_what_the_retention_took_before_it_was_archived_is_named_and_the_archive_stays(
    topics: ArchivedTopics, tmp_path: Path
) -> None:
    stage, source = topics.stage, topics.stage.topics.input
    stage.send(b"0", b"1")
    topics.archive()
    stage.send(b"2", b"3", b"4")
    retain(stage, 2)
    assert topics.archive() == 3, "only what is archived already is gone"
    archived = topics.archived(source)
    stage.send(b"5", b"6", b"7")
    retain(stage, 7)
    for _ in range(2):
        with pytest.raises(ArchiveRefused) as refused:
            topics.archive()
        text = f"{source}-0: {topics.location} ends at offset 5, but the brokers' first offset is 7: their retention deleted"
        assert text in str(refused.value)
        assert "set another payment-status-notification.archive.directory" in str(refused.value)
        assert topics.archived(source) == archived
    assert ArchiveSnapshot(topics.spark, topics.location).ends[source] == {0: 5, 1: 0}

    new = ArchivedTopics(topics.spark, stage, str(tmp_path / "new"))
    assert new.archive() == 1
    assert ArchiveSnapshot(new.spark, new.location).starts[source] == {0: 7, 1: 0}
    new.assert_archived()


def test_what_the_retention_takes_under_the_archiver_ends_it_and_is_named(
    topics: ArchivedTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish, stage = Place.publish, topics.stage

    def outrun(place: Place, source: str, target: str) -> bool:
        """Delete records that no consumer can have in memory yet."""
        monkeypatch.setattr(Place, "publish", publish)
        stage.send(b"1", b"2", b"3", partition=1)
        retain(stage, 2, partition=1)
        return publish(place, source, target)

    stage.send(b"0")
    monkeypatch.setattr(Place, "publish", outrun)
    archiving = Continuing(topics.archiver())
    archiving.start()
    wait_until(lambda: not archiving.is_alive(), "it ends", LONGEST_WAIT_SECONDS, 0.5)
    assert isinstance(archiving.failure, ArchiveRefused), archiving.failure
    text = f"{stage.topics.input}-1: {topics.location} ends at offset 0, but the brokers' first offset is 2: their retention"
    assert text in str(archiving.failure)
    assert [each[5] for each in topics.archived(stage.topics.input)] == [b"0"]


def test_a_batch_that_tasks_wrote_on_another_machine_is_not_shown(
    topics: ArchivedTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.stage.send(b"0", b"1")
    topics.stage.send(b"2", partition=1)
    with monkeypatch.context() as patched:
        patched.setattr(DataFrameWriter, "parquet", write_elsewhere)
        with pytest.raises(
            NotShared, match=r"tasks have written 3 rows, of which [12] can be read here: a machine of the cluster"
        ):
            topics.archive()
    assert ArchiveSnapshot(topics.spark, topics.location).ends == {}
    assert topics.archive() == 3
    topics.assert_archived()


def test_a_full_disk_is_reported_and_once_there_is_room_nothing_is_missing(topics: ArchivedTopics, small_disk: Path) -> None:
    on_disk = ArchivedTopics(topics.spark, topics.stage, str(small_disk / "archive"))
    topics.stage.send(*(os.urandom(RECORD_BYTES) for _ in range(8)))
    assert on_disk.archive() == 8
    topics.stage.send(*(os.urandom(RECORD_BYTES) for _ in range(16)))
    for _ in range(2):
        with pytest.raises(ArchiveUnavailable, match=r"archive: .*No space left on device.*; free some space"):
            on_disk.archive()
        assert len(on_disk.archived(topics.stage.topics.input)) == 8
    subprocess.run(["mount", "-o", f"remount,{LARGE}", str(small_disk)], check=True)
    assert on_disk.archive() == 16
    on_disk.assert_archived()
