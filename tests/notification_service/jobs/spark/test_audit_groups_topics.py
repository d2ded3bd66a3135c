"""The audit of the groups on topics, and in their archive."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from harness.spark.archived_topics import ArchivedTopics
from harness.spark.audited_service import lines_of
from harness.spark.random_groups import RandomGroups, audited_groups
from harness.waiting import wait_ms
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from msgspec.structs import replace

from notification_service.connectors.line_format import Line, decode_line, partition_of
from notification_service.jobs.audit.scopes import archive_scope, topics_scope
from tests.notification_service.connectors.kafka.stage import KafkaStage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from notification_service.jobs.audit.scopes import Scope
    from servers.kafka import KafkaServer

GROUP = "counting-the-facts"


@pytest.fixture
def stage(kafka: KafkaServer) -> Iterator[KafkaStage]:
    stage = KafkaStage(kafka, has_facts=True)
    stage.topics = replace(stage.topics, reports=stage.topics.facts.replace("facts", "reports"))
    stage.kafka.create_topics(stage.topics.reports, partitions=2)
    yield stage
    stage.close()


def test_a_report_that_is_gone_is_named_on_topics_and_in_their_archive_once_its_facts_are_counted(
    spark: SparkSession, stage: KafkaStage, tmp_path: Path
) -> None:
    groups = RandomGroups(tmp_path, seed=3)
    groups.live(groups=12, facts=120)
    gone = find_one_with_a_report_that_says_complete(groups)
    for path in sorted(groups.facts.glob("*.jsonl")):
        send(stage, stage.topics.facts, path)
    send(stage, stage.topics.reports, groups.report_lines, without=gone)
    archived = ArchivedTopics(spark, stage, str(tmp_path / "archive"))
    archived.kafka = replace(archived.kafka, topics=stage.topics)
    kafka = replace(stage.settings(), topics=stage.topics)
    assert found(spark, topics_scope(spark, kafka, wait_ms, GROUP)) == ([], 1), "it may still be counted"
    archived.archive(topics=stage.topics.all, facts_group=GROUP)
    ends = count_facts(stage)
    assert archived.archive(topics=stage.topics.all, facts_group=GROUP) == 0, "only the positions have moved"
    archived.compact()
    of_groups = archived.snapshot().groups
    assert of_groups is not None
    assert of_groups.counted == ends
    assert sum(of_groups.reports.values()) == sum(line["headers"]["group-id"] != gone for line in lines_of(groups.report_lines))
    assert found(spark, archive_scope(spark, archived.location, stage.topics)) == ([("group report missing", gone)], 0)


def find_one_with_a_report_that_says_complete(groups: RandomGroups) -> str:
    headers = [line["headers"] for line in lines_of(groups.report_lines)]
    closed = {each["group-id"] for each in headers if "closed-by" in each}
    return next(each["group-id"] for each in headers if "incomplete" not in each and each["group-id"] not in closed)


def send(stage: KafkaStage, topic: str, path: Path, without: str = "") -> None:
    """Send the lines of a file, those of a key to one partition."""
    with closing(KafkaProducer(bootstrap_servers=stage.bootstrap)) as producer:
        for each in path.read_bytes().splitlines():
            line = decode_line(each)
            assert isinstance(line, Line)
            if ("group-id", without.encode()) not in line.headers:
                key = line.key or b""
                producer.send(topic, line.value, key, list(line.headers), partition_of(key, 2))
        producer.flush()


def count_facts(stage: KafkaStage) -> dict[int, int]:
    """Commit that all facts are counted; return their ends."""
    partitions = [TopicPartition(stage.topics.facts, number) for number in range(2)]
    with closing(KafkaConsumer(bootstrap_servers=stage.bootstrap, group_id=GROUP, enable_auto_commit=False)) as consumer:
        ends = consumer.end_offsets(partitions)
        consumer.commit({each: OffsetAndMetadata(end, "") for each, end in ends.items()})
    return {each.partition: end for each, end in ends.items()}


def found(spark: SparkSession, scope: Scope) -> tuple[list[tuple[str | None, str | None]], int]:
    """Return the findings, and how many reports may still come."""
    assert scope.groups is not None
    rows = audited_groups(spark, scope.groups)
    findings = [(each.deviation, each.unit) for each in rows if each.kind == "finding"]
    return findings, sum(each.open or 0 for each in rows if each.kind == "group")
