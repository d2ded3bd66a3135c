"""Queries a consumer for offsets of several partitions at once.

kafka-python 3.0 leaves partitions without a known leader out of its answers: partitions that were just created, and those whose
broker has ended. Its own callers then fail with a KeyError, or take the partition for one without such a record.
"""

from collections.abc import Collection
from typing import Literal

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import LeaderNotAvailableError

from resequencer.clock import Instant


def find_offsets(
    consumer: KafkaConsumer, names: Collection[TopicPartition], which: Literal["beginning", "end"], timeout_ms: int
) -> dict[TopicPartition, int]:
    """Return the first offset, or the end, of each partition.

    Raises:
        KafkaError: As the client does. LeaderNotAvailableError if it knows no leader of one of the partitions.
    """
    query = consumer.beginning_offsets if which == "beginning" else consumer.end_offsets
    try:
        found: dict[TopicPartition, int] = query(list(names), timeout_ms=timeout_ms)
    except KeyError as error:
        if not isinstance(error.args[0], TopicPartition):
            raise
        raise LeaderNotAvailableError(f"no leader is known of {error.args[0].topic}-{error.args[0].partition}") from error
    return found


def find_since(
    consumer: KafkaConsumer, names: Collection[TopicPartition], instant: Instant, timeout_ms: int
) -> dict[TopicPartition, int]:
    """Return the first offset with a timestamp of `instant` or later, for the partitions that have one.

    Raises:
        KafkaError: As the client does. KafkaTimeoutError if it knows no leader of one of the partitions.
    """
    found = consumer.offsets_for_times(dict.fromkeys(names, instant), timeout_ms=timeout_ms)
    for name in names:
        if found.get(name) is None:  # The client waits for the leader only if no other partition is in the query.
            found |= consumer.offsets_for_times({name: instant}, timeout_ms=timeout_ms)
    return {name: at.offset for name, at in found.items() if at is not None}
