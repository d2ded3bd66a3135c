"""The audit of a service's topics and of their archive."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from harness.spark.archived_topics import ArchivedTopics
from harness.spark.processed_topics import ProcessedTopics
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition

from notification_service.jobs.audit.scopes import archive_scope
from notification_service.jobs.audit.summary import AuditSummary
from notification_service.jobs.errors import AuditRefused
from tests.notification_service.connectors.kafka.stage import KafkaStage, read_to_end


@pytest.mark.nightly("jobs")
def test_the_command_proves_what_a_service_on_kafka_let_out(processed: ProcessedTopics) -> None:
    audit_run = processed.service.verb("audit", seconds=600)
    assert audit_run.returncode == 0, audit_run.stdout + audit_run.stderr
    assert "Nothing is lost, doubled or out of order; the content is as expected" in audit_run.stdout
    assert "0 open" in audit_run.stdout
    assert f"{processed.orders} order" in audit_run.stdout
    page = (processed.service.run_directory / "audit" / "page.html").read_text()
    assert "Waiting times of notifications" in page


def test_what_a_service_on_kafka_let_out_is_proved_from_the_topics(processed: ProcessedTopics) -> None:
    summary = processed.audit(processed.scope(), "with orders")
    assert findings(summary) == {}
    orders = summary.orders
    assert (orders.given, orders.without_outcome) == (processed.orders, 0)
    assert orders.done >= 1


def test_each_fault_in_the_output_topic_is_named_and_so_it_is_from_the_archive(
    processed: ProcessedTopics, tmp_path: Path
) -> None:
    faulty = planted(processed.stage)
    expected = {"lost": 1, "doubled": 1, "out of order": 1, "wrong content": 1, "orphan": 1, "wrong headers": 1}
    assert findings(processed.audit(processed.scope(notifications=faulty), "topics")) == expected
    archived = ArchivedTopics(processed.spark, processed.stage, str(tmp_path / "archive"))
    archived.kafka = processed.settings(notifications=faulty)
    archived.archive(topics=archived.kafka.topics.all)
    scope = archive_scope(processed.spark, archived.location, archived.kafka.topics)
    assert findings(processed.audit(scope, "archive")) == expected


def test_of_topics_whose_beginning_is_gone_and_of_an_empty_archive_nothing_is_said(
    processed: ProcessedTopics, tmp_path: Path
) -> None:
    shortened = copied(processed.stage, processed.stage.topics.notifications, lambda records: records)
    with closing(KafkaAdminClient(bootstrap_servers=processed.stage.bootstrap)) as admin:
        admin.delete_records({TopicPartition(shortened, 0): 1})
    with pytest.raises(AuditRefused, match=r"first offset is 1.*--archive"):
        processed.scope(notifications=shortened)
    with pytest.raises(AuditRefused, match="no position of the service"):
        archive_scope(processed.spark, str(tmp_path / "nothing"), processed.stage.topics)


def planted(stage: KafkaStage) -> str:
    """Make a copy of the output topic with a fault in each of six units that have no marks."""

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
        records.append(with_header(records[orphan[0]], "notification-id", b"A" * 32)._replace(key=b"unknown"))
        records.append(records[doubled[0]])
        del records[lost[1]]
        return records

    return copied(stage, stage.topics.notifications, plant)


def copied(stage: KafkaStage, topic: str, change: Callable[[list[Any]], list[Any]]) -> str:
    """Make a copy of the topic with changed records; return its name."""
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


def findings(summary: AuditSummary) -> dict[str, int]:
    return {name: count for name, count in summary.counts.items() if count}
