"""The audit of the topics that a service on Kafka read and wrote, and of their archive."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from time import sleep
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from archived_topics import ArchivedTopics
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from msgspec.structs import replace
from operated_service import INGRESS, NOTIFICATION, OperatedService
from pyspark.sql import SparkSession
from spark_options import fast_sources

from connectors.kafka_settings import KafkaSettings
from connectors.kafka_topic_names import KafkaTopics
from daemon.audit import audit_settings
from daemon.configuration import load
from daemon.status_report import State, StatusReport
from pipeline.audit.counting import summarize
from pipeline.audit.errors import AuditRefused
from pipeline.audit.job import audit_records
from pipeline.audit.kafka_scope import archive_scope, topics_scope
from pipeline.audit.scope import Scope
from pipeline.audit.summary import AuditSummary
from servers.kafka import KafkaServer
from tests.connectors.kafka_stage import KafkaStage, read_to_end

PATIENCE_SECONDS = 300


class Lived(NamedTuple):
    """A service that has worked off simulated payments, and has ended."""

    spark: SparkSession
    stage: KafkaStage
    service: OperatedService

    def audit(self, scope: Scope, name: str) -> AuditSummary:
        settings = audit_settings(load(self.service.directory / "service.conf"), dict(scope.settled))
        return summarize(audit_records(self.spark, scope, settings, self.service.directory / name))

    def scope(self, **topics: str) -> Scope:
        return topics_scope(self.spark, self.settings(**topics), pause)

    def settings(self, **topics: str) -> KafkaSettings:
        """With other topics in the place of those that are named."""
        settings = self.stage.settings()
        names = {"input": settings.topics.input, "notifications": settings.topics.notifications} | topics
        return replace(settings, topics=KafkaTopics(**names, dead_letters=settings.topics.dead_letters))


@pytest.fixture(scope="module")
def lived(spark: SparkSession, kafka: KafkaServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lived]:
    directory, stage = tmp_path_factory.mktemp("lived"), KafkaStage(kafka)
    fast_sources(directory)
    names, clients = stage.topics, f'{{ bootstrap.servers = "{stage.bootstrap}", group.id = {stage.group} }}'
    (directory / "service.conf").write_text(f"""
        {INGRESS} {{ transport = kafka, kafka.consumer {{ topic = {names.input}, kafka-clients {clients} }} }}
        {NOTIFICATION} {{
          run-directory = "{directory}/run"
          transport = kafka, kafka.producer.topic = {names.notifications}, dead-letters.topic = {names.dead_letters}
          lookups.sources = "{directory}/fast.conf"
          resequencer {{ storage-type = embedded, strategy = SEQUENCE, stash-timeout = 2s }}
        }}
    """)
    service = OperatedService(directory, config="service.conf")
    service.run_directory = directory / "run"
    try:
        service.start().wait_for_report(lambda report: report.state == State.READY, "ready", PATIENCE_SECONDS)
        simulated = service.verb(
            "simulate",
            "--units",
            "40",
            "--seed",
            "7",
            "--late",
            "0",
            "--losses",
            "5%",
            "--garbage",
            "2%",
            seconds=PATIENCE_SECONDS,
        )
        assert simulated.returncode == 0, simulated.stderr
        service.wait_for_report(has_nothing_left(stage), "everything is read and nothing waits", PATIENCE_SECONDS)
        assert service.stop() == 0
        yield Lived(spark, stage, service)
    finally:
        service.clear_away()
        stage.close()


def has_nothing_left(stage: KafkaStage) -> Callable[[StatusReport], bool]:
    with closing(stage.reader()) as reader:
        ends = reader.end_offsets([TopicPartition(*each) for each in stage.partitions])

    def is_idle(report: StatusReport) -> bool:
        read = {int(each.partition.rpartition("-")[2]): each.read_to for each in report.partitions}
        is_read = read == {name.partition: end for name, end in ends.items()}
        return is_read and not report.units.waiting and not any(each.unpublished for each in report.partitions)

    return is_idle


def test_what_a_service_on_kafka_let_out_is_proved_from_the_topics(lived: Lived) -> None:
    said = lived.service.verb("audit", seconds=600)
    assert said.returncode == 0, said.stdout + said.stderr
    assert "Nothing lost, nothing doubled, nothing out of order, content as expected" in said.stdout
    assert "0 open" in said.stdout
    page = (lived.service.run_directory / "audit" / "page.html").read_text()
    assert "milliseconds" in page


def test_each_fault_in_the_output_topic_is_named_and_so_it_is_from_the_archive(lived: Lived, tmp_path: Path) -> None:
    faulty = planted(lived.stage)
    expected = {"lost": 1, "doubled": 1, "out of order": 1, "wrong content": 1, "orphan": 1, "wrong headers": 1}
    assert told(lived.audit(lived.scope(notifications=faulty), "topics")) == expected
    archived = ArchivedTopics(lived.spark, lived.stage, str(tmp_path / "archive"))
    archived.kafka = lived.settings(notifications=faulty)
    archived.archive(topics=archived.kafka.topics.all)
    scope = archive_scope(lived.spark, archived.location, archived.kafka.topics)
    assert told(lived.audit(scope, "archive")) == expected


def test_of_topics_whose_beginning_is_gone_and_of_an_empty_archive_nothing_is_said(lived: Lived, tmp_path: Path) -> None:
    shortened = copied(lived.stage, lived.stage.topics.notifications, lambda records: records)
    with closing(KafkaAdminClient(bootstrap_servers=lived.stage.bootstrap)) as admin:
        admin.delete_records({TopicPartition(shortened, 0): 1})
    with pytest.raises(AuditRefused, match=r"first offset is 1.*--archive"):
        lived.scope(notifications=shortened)
    with pytest.raises(AuditRefused, match="no position of the service"):
        archive_scope(lived.spark, str(tmp_path / "nothing"), lived.stage.topics)


def planted(stage: KafkaStage) -> str:
    """A topic like the output, with a fault in each of six units that nothing ails."""

    def plant(records: list[Any]) -> list[Any]:
        marks = {"incomplete", "late"}
        ailing = {record.key for record in records if marks & {name for name, _ in record.headers}}
        units = [key for key in dict.fromkeys(record.key for record in records) if key not in ailing]
        of = {key: [at for at, record in enumerate(records) if record.key == key] for key in units}
        lost, doubled, swapped, changed, orphan, renamed, *_ = (of[key] for key in units if len(of[key]) > 2)
        records[swapped[0]], records[swapped[1]] = records[swapped[1]], records[swapped[0]]
        records[changed[1]] = records[changed[1]]._replace(
            value=records[changed[1]].value.replace(b'"OrgnlMsgId":"', b'"OrgnlMsgId":"X')
        )
        records[renamed[1]] = with_header(records[renamed[1]], "event-name", b"PaymentForgotten")
        records.append(with_header(records[orphan[0]], "notification-id", b"A" * 32)._replace(key=b"nobody"))
        records.append(records[doubled[0]])
        del records[lost[1]]
        return records

    return copied(stage, stage.topics.notifications, plant)


def copied(stage: KafkaStage, topic: str, change: Callable[[list[Any]], list[Any]]) -> str:
    """The name of a copy of the topic, in whose records something was changed."""
    name = f"copy-{uuid4().hex[:12]}"
    stage.kafka.create_topics(name, partitions=2)
    with closing(stage.reader()) as reader:
        records = change(read_to_end(reader, topic))
    with closing(KafkaProducer(bootstrap_servers=stage.bootstrap)) as producer:
        for each in records:
            producer.send(name, each.value, each.key, list(each.headers), each.partition, each.timestamp)
        producer.flush()
    return name


def with_header(record: Any, name: str, value: bytes) -> Any:
    return record._replace(headers=[(each, value if each == name else was) for each, was in record.headers])


def told(summary: AuditSummary) -> dict[str, int]:
    return {name: count for name, count in summary.counts.items() if count}


def pause(milliseconds: int) -> None:
    sleep(milliseconds / 1_000)
