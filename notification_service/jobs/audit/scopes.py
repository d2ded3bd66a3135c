"""The input of an audit: files, the current topics, or their archive."""

from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from notification_service.connectors.files.settings import FileSettings
from notification_service.connectors.kafka.core.client_options import KafkaTopics
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.connectors.kafka.topic_ends import TopicEnds, TopicEndsReader
from notification_service.jobs.audit.groups.job import GroupRecords
from notification_service.jobs.audit.groups.sources import GroupDirectories, groups_of_files, groups_of_topics
from notification_service.jobs.audit.lines import FileScope, Portion, find_scope, read_portion
from notification_service.jobs.audit.record_rows import Topics, record_rows
from notification_service.jobs.audit.rows import NOTIFICATION
from notification_service.jobs.audit.rules import AuditRules, AuditSettings
from notification_service.jobs.audit.tables import ROW, portion_rows, row_batches
from notification_service.jobs.errors import AuditRefused
from notification_service.jobs.spark.counted_write import Batches, Step, spark_schema
from notification_service.jobs.spark.session import java_options
from notification_service.jobs.spark.topics import LATEST_MS, read_topic, too_late
from notification_service.jobs.topic_archive.reading import ArchiveSnapshot
from resequencer.gc_tuning import calm_collector
from resequencer.record import Partition


class Scope(NamedTuple):
    """`settled` holds the offset up to which each input partition was settled, `size` the approximate number of bytes to read.

    `rows` makes the rows of `notification_service.jobs.audit.rows`. `groups` are the records of groups, None without aggregation.
    """

    settled: Mapping[int, int]
    size: int
    rows: Callable[[AuditSettings], DataFrame]
    groups: GroupRecords | None = None


def files_scope(
    spark: SparkSession,
    settings: FileSettings,
    archive: Path,
    orders: Path | None = None,
    groups: GroupDirectories | None = None,
) -> Scope:
    """Return the scope of the file transport. `orders` is the directory of the orders, None for a service without orders.

    `groups` are the directories of aggregation, None without it.

    Raises:
        AuditRefused: A part of the data is gone, so that its content cannot be checked.
    """
    found = find_scope(settings, archive, orders)
    notifications = [each for each in found.portions if each.kind == NOTIFICATION]
    of_groups = None if groups is None else groups_of_files(spark, groups, notifications)
    return Scope(found.settled, found.size, lambda judged_by: file_rows(spark, found, judged_by), of_groups)


def file_rows(spark: SparkSession, scope: FileScope, settings: AuditSettings) -> DataFrame:
    return portion_rows(spark, scope.portions).mapInArrow(_reader(settings), spark_schema(ROW))


def _reader(settings: AuditSettings) -> Step:
    def read(batches: Batches) -> Iterator[pa.RecordBatch]:
        calm_collector()
        rules = AuditRules(settings)
        for batch in batches:
            for each in batch.to_pylist():
                yield from row_batches(read_portion(Portion(**each), rules))

    return read


_RECORD_BYTES = 1_200
"""The approximate size of an envelope or a notification."""

_DECIDED_SECONDS = 60
_LOOK_MS = 200


def topics_scope(spark: SparkSession, kafka: KafkaSettings, wait: Callable[[int], object], facts_group: str = "") -> Scope:
    """Return the scope of the topics. `wait` takes milliseconds.

    Positions are read before the ends. So the output that the positions stand for is included, and the input that caused it.
    Groups are in it if there are topics of facts and of reports; `facts_group` is the consumer group that counts the facts.

    Raises:
        AuditRefused: A topic's beginning is gone, a transaction stays open, or Spark cannot hold a timestamp.
        TransportUnavailable, TransportRefused: The brokers do not answer, or refuse access.
    """
    if not kafka.topics.reports:
        kafka = kafka.without_facts()
    topic_ends = _topic_ends(kafka, wait, facts_group)
    for partition, start in sorted(topic_ends.starts.items()):
        if start > 0:
            raise AuditRefused(
                f"{partition}: the brokers' first offset is {start}; earlier records are gone, so the audit cannot check them. "
                "Audit the archive, if it was kept from the beginning (--archive), or keep the topics' records longer "
                "(their retention.ms)"
            )
    client = java_options(kafka.consumer)

    def read(topic: str) -> DataFrame:
        return read_topic(spark, client, topic, _ends_of(topic, topic_ends.ends))

    settled = {partition.number: offset for partition, offset in topic_ends.positions.items()}
    counted = {partition.number: offset for partition, offset in topic_ends.counted.items()}
    return _scope(settled, sum(topic_ends.ends.values()), kafka.topics, read, counted)


def archive_scope(spark: SparkSession, location: str, topics: KafkaTopics) -> Scope:
    """Return the scope of the archive as it is now; what is archived meanwhile is left out.

    Raises:
        AuditRefused: The archive holds no positions, or does not begin at the topic's beginning.
        ArchiveRefused, ArchiveUnavailable: The archive cannot be read.
    """
    archived = ArchiveSnapshot(spark, location)
    if archived.positions is None:
        raise AuditRefused(
            f"{location} holds no position of the service, so it is unknown how far the archive is complete; is this the "
            "service's configuration? Archive the topics once more, while the service runs or after it has drained "
            "(archive-topics)"
        )
    if not topics.reports:
        topics = topics.without_facts()
    for topic, starts in archived.starts.items():
        for partition, start in starts.items():
            if start > 0 and topic in topics.all:
                raise AuditRefused(
                    f"{location}: {topic}-{partition} is archived only from offset {start} on, so the audit cannot check earlier "
                    "records. Audit an archive that was kept from the topic's beginning"
                )
    records = sum(end for topic in topics.all for end in archived.ends.get(topic, {}).values())
    if not topics.facts:
        return _scope(archived.positions, records, topics, archived.read, {})
    groups = archived.groups
    if groups is None:
        raise AuditRefused(
            f"{location} does not hold how far the facts are counted: it was archived without aggregation. Archive the topics "
            "once more (archive-topics)"
        )

    def read(topic: str) -> DataFrame:
        """Leave out reports that may stand on facts that are not archived yet."""
        records = archived.read(topic)
        if topic != topics.reports:
            return records
        is_known = [(F.col("partition") == number) & (F.col("offset") < end) for number, end in groups.reports.items()]
        return records.where(reduce(Column.__or__, is_known, F.lit(False)))

    return _scope(archived.positions, records, topics, read, groups.counted)


def _topic_ends(kafka: KafkaSettings, wait: Callable[[int], object], facts_group: str) -> TopicEnds:
    """Return the ends once all records written before the call are decided."""
    reader, until = TopicEndsReader(kafka, facts_group), monotonic() + _DECIDED_SECONDS
    try:
        topic_ends = reader.look()
        while not topic_ends.is_decided:
            if monotonic() > until:
                raise AuditRefused(
                    "a transaction stays open, so it is unknown what was sent; end the transaction, or wait, and audit again"
                )
            wait(_LOOK_MS)
            topic_ends = reader.again(topic_ends)
        if problem := too_late(reader.find_since(topic_ends, LATEST_MS + 1)):
            raise AuditRefused(problem)
        return topic_ends
    finally:
        reader.close()


def _scope(
    settled: Mapping[int, int], records: int, topics: KafkaTopics, read: Callable[[str], DataFrame], counted: Mapping[int, int]
) -> Scope:
    of_orders = [read(name) if name else None for name in (topics.orders, topics.order_outcomes)]
    read_of = Topics(read(topics.input), read(topics.notifications), read(topics.dead_letters), *of_orders)
    groups = groups_of_topics(topics, read, counted) if topics.facts else None
    return Scope(settled, records * _RECORD_BYTES, lambda settings: record_rows(read_of, settings), groups)


def _ends_of(topic: str, ends: Mapping[Partition, int]) -> dict[int, int]:
    return {partition.number: end for partition, end in ends.items() if partition.topic == topic}
