"""On real brokers: how far an archive is from what the retention deletes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from harness.console_stage import make_sources
from harness.processes.operated_service import INGRESS, NOTIFICATION
from kafka import TopicPartition

from guardian.ports import TransportUnavailable
from notification_service.configuration.configuration import Configuration
from notification_service.console.history import History, Sampler
from notification_service.console.sources import ArchiveDistance
from notification_service.jobs.errors import ArchiveRefused
from notification_service.jobs.topic_archive.manifest import NAME, ArchivedTopic, DirectoryManifest, encode
from notification_service.wiring.console import find_archive_distances
from resequencer.record import Partition
from servers.kafka import KafkaServer
from tests.notification_service.connectors.kafka.stage import KafkaStage


@pytest.fixture
def stage(kafka: KafkaServer) -> Iterator[KafkaStage]:
    with closing(KafkaStage(kafka)) as stage:
        yield stage


def archive(location: Path, batch: int, **ends: dict[int, int]) -> None:
    """Write a batch's manifest as the archiver does."""
    directory = location / "batches" / f"batch={batch}-{batch}"
    directory.mkdir(parents=True)
    topics = {name: ArchivedTopic(1, 1) for name in ends}
    manifest = DirectoryManifest(batch, batch, 1_774_740_835_941, topics, {name: {0: 0} for name in ends}, dict(ends))
    (directory / NAME).write_text(encode(manifest), encoding="utf-8")


def delete_before(stage: KafkaStage, partition: Partition, offset: int) -> None:
    """Delete records as the brokers' retention does."""
    with closing(stage.kafka.admin()) as admin:
        admin.delete_records({TopicPartition(*partition): offset})


@pytest.fixture
def configured(stage: KafkaStage, loaded: Callable[..., Configuration], tmp_path: Path) -> Configuration:
    return on_kafka(stage, loaded, tmp_path, stage.bootstrap)


def on_kafka(
    stage: KafkaStage, loaded: Callable[..., Configuration], directory: Path, brokers: str, timeout_ms: int = 20_000
) -> Configuration:
    clients, topics = f'bootstrap.servers = "{brokers}"', stage.topics
    consumer = f"{clients}, group.id = {stage.group}, default.api.timeout.ms = {timeout_ms}"
    return loaded(f"""
        {INGRESS} {{ transport = kafka, kafka.consumer {{ topic = {topics.input}, kafka-clients {{ {consumer} }} }} }}
        {NOTIFICATION} {{
          run-directory = "{directory}", archive.directory = "file://{directory}/records"
          dead-letters.topic = {topics.dead_letters}
          transport = kafka, kafka.producer {{ topic = {topics.notifications}, kafka-clients {{ {clients} }} }}
        }}
    """)


@pytest.mark.slow
def test_the_distance_goes_from_the_newest_batch_to_the_logs_first_offset_and_to_its_end(
    stage: KafkaStage, configured: Configuration, tmp_path: Path
) -> None:
    first, second = stage.partitions
    stage.send(*[b"v"] * 9)
    assert find_archive_distances(configured) == {}, "nothing is archived yet"
    archive(tmp_path / "records", 1, **{first.topic: {0: 2}})
    archive(tmp_path / "records", 2, **{first.topic: {0: 6, 1: 0}})
    found = find_archive_distances(configured)
    assert {each.topic for each in found} == set(stage.topics.all)
    assert (found[first], found[second]) == (ArchiveDistance(6, 3), ArchiveDistance(0, 0))
    delete_before(stage, first, 4)
    assert find_archive_distances(configured)[first] == ArchiveDistance(2, 3)
    delete_before(stage, first, 8)
    assert find_archive_distances(configured)[first] == ArchiveDistance(-2, 3), "two are gone that were not archived"


@pytest.mark.slow
def test_a_partition_that_no_batch_has_is_not_archived_from_its_first_offset_on(
    stage: KafkaStage, configured: Configuration, tmp_path: Path
) -> None:
    stage.send(*[b"v"] * 5, partition=1)
    delete_before(stage, stage.partitions[1], 2)
    archive(tmp_path / "records", 1, **{stage.topics.input: {0: 0}})
    assert find_archive_distances(configured)[stage.partitions[1]] == ArchiveDistance(0, 3)


@pytest.mark.slow
def test_an_archive_that_cannot_be_read_or_brokers_that_are_away_leave_the_distance_unknown(
    stage: KafkaStage, loaded: Callable[..., Configuration], configured: Configuration, tmp_path: Path
) -> None:
    archive(tmp_path / "records", 1, **{stage.topics.input: {0: 0}})
    away = on_kafka(stage, loaded, tmp_path, "127.0.0.1:1", 2_000)
    with pytest.raises(TransportUnavailable):
        find_archive_distances(away)
    assert sampled(configured, tmp_path) is not None
    assert sampled(away, tmp_path) is None
    archive(tmp_path / "records", 3, **{stage.topics.input: {0: 0}})
    with pytest.raises(ArchiveRefused, match="batch 2 is missing"):
        find_archive_distances(configured)
    assert sampled(configured, tmp_path) is None


def sampled(configuration: Configuration, directory: Path) -> object:
    """Return what the console's thread knows after a look."""
    sources = make_sources(directory)._replace(find_archive_distances=lambda: find_archive_distances(configuration))
    sampler = Sampler(sources, History(directory, sources.steady_clock))
    sampler.look_at_archive()
    return sampler.archive_distances


def test_files_have_no_such_distance(loaded: Callable[..., Configuration], tmp_path: Path) -> None:
    archive(tmp_path / "records", 1, T={0: 5})
    files = loaded(f'{INGRESS}.transport = file\n{NOTIFICATION} {{ transport = file, run-directory = "{tmp_path}" }}')
    assert find_archive_distances(files) == {}
