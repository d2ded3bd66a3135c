"""What an audit reads of Kafka: the topics as they are, or what was archived of them."""

from collections.abc import Callable, Mapping
from time import monotonic

from pyspark.sql import DataFrame, SparkSession

from connectors.kafka.core.topic_names import KafkaTopics
from connectors.kafka.settings import KafkaSettings
from connectors.kafka.topic_ends import TopicEnds, TopicEndsReader
from domain.record import Partition
from pipeline.archive.reading import ArchiveSnapshot
from pipeline.audit.errors import AuditRefused
from pipeline.audit.record_rows import Topics, record_rows
from pipeline.audit.scope import Scope
from pipeline.spark.java_client import java_options
from pipeline.spark.topics import LATEST_MS, read_topic, too_late

_RECORD_BYTES = 1_200
"""About what an envelope or a notification takes."""

_DECIDED_SECONDS = 60
_LOOK_MS = 200


def topics_scope(spark: SparkSession, kafka: KafkaSettings, wait: Callable[[int], object]) -> Scope:
    """Positions first, then the ends: what is said to have left is there, and its cause too. `wait` takes milliseconds.

    Raises:
        AuditRefused: A topic's beginning is gone, somebody's transaction stays undecided, or Spark cannot hold a timestamp.
        TransportUnavailable, TransportRefused: The brokers are away, or do not let us look.
    """
    topic_ends = _topic_ends(kafka, wait)
    for partition, start in sorted(topic_ends.starts.items()):
        if start > 0:
            raise AuditRefused(
                f"{partition}: the brokers' first offset is {start}; what lay before is gone, and with it what could show that "
                "nothing was lost. Audit the archive, if it was kept from the beginning (--archive), or let the topics keep all "
                "of it (their retention.ms)"
            )
    client = java_options(kafka.consumer)

    def read(topic: str) -> DataFrame:
        return read_topic(spark, client, topic, _ends_of(topic, topic_ends.ends))

    settled = {partition.number: offset for partition, offset in topic_ends.positions.items()}
    return _scope(settled, sum(topic_ends.ends.values()), kafka.topics, read)


def archive_scope(spark: SparkSession, location: str, topics: KafkaTopics) -> Scope:
    """What is in it now, and nothing that is archived meanwhile.

    Raises:
        AuditRefused: There are no positions in it, or its beginning is not the topic's.
        ArchiveRefused, ArchiveUnavailable: It cannot be read.
    """
    archived = ArchiveSnapshot(spark, location)
    if archived.positions is None:
        raise AuditRefused(
            f"{location} has no position of the service up to which everything is archived; is this the service's configuration? "
            "Archive the topics once more, while the service runs or after it has drained (archive-topics)"
        )
    for topic, starts in archived.starts.items():
        for partition, start in starts.items():
            if start > 0:
                raise AuditRefused(
                    f"{location}: {topic}-{partition} is archived from offset {start} on, and without what lay before nobody can "
                    "say whether all is there. Audit an archive that was kept from the topic's beginning"
                )
    records = sum(end for topic in topics.all for end in archived.ends.get(topic, {}).values())
    return _scope(archived.positions, records, topics, archived.read)


def _topic_ends(kafka: KafkaSettings, wait: Callable[[int], object]) -> TopicEnds:
    """Once all is decided that anybody has written by now."""
    reader, until = TopicEndsReader(kafka), monotonic() + _DECIDED_SECONDS
    try:
        topic_ends = reader.look()
        while not topic_ends.is_decided:
            if monotonic() > until:
                raise AuditRefused(
                    "somebody's transaction stays open, so nobody knows what was sent; end it, or wait, and audit again"
                )
            wait(_LOOK_MS)
            topic_ends = reader.again(topic_ends)
        if problem := too_late(reader.find_since(topic_ends, LATEST_MS + 1)):
            raise AuditRefused(problem)
        return topic_ends
    finally:
        reader.close()


def _scope(settled: Mapping[int, int], records: int, topics: KafkaTopics, read: Callable[[str], DataFrame]) -> Scope:
    read_of = Topics(read(topics.input), read(topics.notifications), read(topics.dead_letters))
    return Scope(settled, records * _RECORD_BYTES, lambda settings: record_rows(read_of, settings))


def _ends_of(topic: str, ends: Mapping[Partition, int]) -> dict[int, int]:
    return {partition.number: end for partition, end in ends.items() if partition.topic == topic}
