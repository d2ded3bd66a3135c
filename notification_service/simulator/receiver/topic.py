"""Reads from a topic of Kafka which notifications a receiver should have taken."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from guardian.headers import NOTIFICATION_ID
from resequencer.record import Origin, Partition

_POLL_MS = 500
_OPTIONS: dict[str, Any] = {"isolation_level": "read_committed", "auto_offset_reset": "earliest", "enable_auto_commit": False}


def read_topic(bootstrap: str, topic: str) -> Iterator[tuple[str, str]]:
    """Yield unit and notification id of each committed record, in the order of its partition, up to the end as of now.

    Raises:
        ValueError: There is no such topic, or a record is no notification; the text names it.
    """
    with closing(KafkaConsumer(bootstrap_servers=bootstrap, **_OPTIONS)) as reader:
        numbers = reader.partitions_for_topic(topic)
        if not numbers:
            raise ValueError(f"topic {topic} does not exist at {bootstrap}")
        partitions = [TopicPartition(topic, number) for number in sorted(numbers)]
        reader.assign(partitions)
        reader.seek_to_beginning()
        ends = reader.end_offsets(partitions)
        while any(reader.position(each) < end for each, end in ends.items()):
            for records in reader.poll(timeout_ms=_POLL_MS).values():
                for record in records:
                    yield _pair_of(record)


def _pair_of(record: Any) -> tuple[str, str]:
    headers = dict(record.headers)
    if record.key is None or NOTIFICATION_ID not in headers:
        position = Origin(Partition(record.topic, record.partition), record.offset)
        raise ValueError(f"{position}: no notification with key and notification-id")
    return record.key.decode(), headers[NOTIFICATION_ID].decode()
