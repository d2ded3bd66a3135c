"""The records of one key are found in an archive without Spark, and a unit's page shows what they were."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.spark.archived_topics import ArchivedTopics
from pyspark.sql import SparkSession

from notification_service.console.unit_story import SentBy
from notification_service.jobs.errors import ArchiveRefused
from notification_service.jobs.topic_archive.local_reading import find_records
from notification_service.wiring.sent_notifications import ArchivedOutput, find_arrived_in
from servers.kafka import KafkaServer
from tests.notification_service.connectors.kafka.stage import KafkaStage

HEADERS = [("notification-id", b"N1"), ("event-name", b"PaymentAccepted"), ("incomplete", b"sequence:3")]


@pytest.fixture
def topics(spark: SparkSession, kafka: KafkaServer, tmp_path: Path) -> Iterator[ArchivedTopics]:
    stage = KafkaStage(kafka)
    yield ArchivedTopics(spark, stage, str(tmp_path / "archive"))
    stage.close()


def found(topics: ArchivedTopics, key: bytes, seconds: float = 60) -> list[bytes]:
    return [each.value for each in find_records(Path(topics.location), topics.stage.topics.input, key, seconds).records]


def test_the_records_of_a_key_are_found_in_all_batches_each_once_and_in_order(topics: ArchivedTopics) -> None:
    send = topics.stage.send
    send(b"a1", b"a2", key=b"a")
    send(b"b1", key=b"b")
    topics.archive()
    send(b"a3", b"", key=b"a")
    send(b"none", key=None)
    topics.archive()
    assert found(topics, b"a") == [b"a1", b"a2", b"a3", b""]
    assert found(topics, b"b") == [b"b1"]
    assert found(topics, b"c") == []
    topics.compact()
    assert found(topics, b"a") == [b"a1", b"a2", b"a3", b""]


def test_the_records_that_passed_through_are_found_by_the_header_that_names_their_unit(
    topics: ArchivedTopics, tmp_path: Path
) -> None:
    ours = [("resequencer-notification-id", b"N1"), ("resequencer-source-position", b"IN-0@7")]
    topics.stage.send(b"by its header", key=b"another", headers=[*ours, ("resequencer-unit-of-work", b"a")])
    topics.stage.send(b"by its key", key=b"a", headers=ours)
    topics.stage.send(b"of another unit", key=b"a", headers=[*ours, ("resequencer-unit-of-work", b"b")])
    topics.archive()
    output = ArchivedOutput(tmp_path / "archive", topics.stage.topics.input, "resequencer-unit-of-work")
    assert [(each.notification_id, each.position) for each in output.find_sent("a", 10).found] == [("N1", "IN-0@7")] * 2
    records = find_records(tmp_path / "archive", topics.stage.topics.input, b"a", 60, "resequencer-unit-of-work").records
    assert {(each.key, each.value) for each in records} == {
        (b"another", b"by its header"), (b"a", b"by its key"), (b"a", b"of another unit"),
    }  # fmt: skip
    assert [each.value for each in find_records(tmp_path / "archive", topics.stage.topics.input, b"a", 60).records] == [
        b"by its key", b"of another unit",
    ]  # fmt: skip


def test_when_the_time_is_over_the_newest_batches_were_read_and_that_is_reported(topics: ArchivedTopics) -> None:
    topics.stage.send(b"old", key=b"a")
    topics.archive()
    topics.stage.send(b"new", key=b"a")
    topics.archive()
    part = find_records(Path(topics.location), topics.stage.topics.input, b"a", 0)
    assert ([each.value for each in part.records], part.is_whole) == ([b"new"], False)


def test_a_missing_batch_or_a_damaged_file_is_reported(topics: ArchivedTopics, tmp_path: Path) -> None:
    for value in (b"1", b"2"):
        topics.stage.send(value, key=b"a")
        topics.archive()
    (file,) = (tmp_path / "archive" / "batches" / "batch=2-2").rglob("*.parquet")
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(ArchiveRefused, match="damaged"):
        found(topics, b"a")
    (tmp_path / "archive" / "batches" / "batch=1-1").rename(tmp_path / "elsewhere")
    with pytest.raises(ArchiveRefused, match="batch 1 is missing"):
        found(topics, b"a")


def test_a_units_page_has_its_notifications_from_the_archive_and_says_until_when(topics: ArchivedTopics, tmp_path: Path) -> None:
    output = ArchivedOutput(tmp_path / "archive", topics.stage.topics.input)
    assert "not known here" in output.find_sent("uow-1", 10).searched
    topics.stage.send(b"{}", key=b"uow-1", headers=HEADERS)
    topics.archive()
    published = output.find_sent("uow-1", 10)
    assert [(each.notification_id, each.event, each.marks) for each in published.found] == [
        ("N1", "PaymentAccepted", ("incomplete sequence:3",))
    ]
    assert "what was sent after 20" in published.searched
    assert not published.is_complete
    topic = topics.stage.topics.input
    assert published.found[0].sent_to in {f"{topic}-{number}@0" for number in range(2)}
    assert output.find_sent("uow-2", 10).found == ()


def test_what_was_archived_is_found_by_its_notification_id_by_its_payment_and_as_what_came(
    topics: ArchivedTopics, tmp_path: Path
) -> None:
    archive, topic = tmp_path / "archive", topics.stage.topics.input
    output = ArchivedOutput(archive, topic)
    report = b'{"CstmrPmtStsRpt":{"OrgnlPmtInfAndSts":[{"TxInfAndSts":[{"OrgnlEndToEndId":"INVOICE-4711","TxSts":"ACSC"}]}]}}'
    topics.stage.send(report, key=b"uow-1", headers=HEADERS)
    topics.stage.send(b'{"Nm":"INVOICE-4711"}', key=b"uow-2", headers=[("notification-id", b"N2")])
    topics.archive()
    assert output.find_sent_by(SentBy(notification_id="N1"), 10).units == ("uow-1",)
    by_payment = output.find_sent_by(SentBy(end_to_end_id="INVOICE-4711"), 10)
    assert by_payment.units == ("uow-1",)
    assert "what was sent after 20" in by_payment.searched
    assert output.find_sent_by(SentBy(end_to_end_id="INVOICE"), 10).units == ()
    assert len(find_arrived_in(archive, topic, "uow-1", 10).found) == 1
    assert "archive-topics" in find_arrived_in(tmp_path / "none", topic, "uow-1", 10).searched
