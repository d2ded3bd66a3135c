"""Reads the logs' ends and the group's positions, with a client of its own.

On the group member's connection such a call would wait behind a fetch, for up to `fetch.max.wait.ms`.

kafka-python 3.0 leaves partitions without a known leader out of its answers: partitions that were just created, and those whose
broker has ended. Its own callers then fail with a KeyError, or take the partition for one without such a record.
"""

from collections.abc import Collection, Hashable
from time import monotonic
from typing import Literal

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import LeaderNotAvailableError

from guardian.ports import TransportUnavailable
from notification_service.connectors.kafka.client import make_client, translated
from notification_service.connectors.kafka.core.fencing import Committed
from notification_service.connectors.kafka.settings import KafkaSettings
from resequencer.clock import Instant
from resequencer.record import Partition


class LogReader:
    """Reads starts and ends of logs, and committed positions: stable ones, not those of open transactions, and fresh."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._options = {name: value for name, value in settings.consumer.items() if name != "group_instance_id"}
        self._consumer: KafkaConsumer | None = None
        # Unanswered questions about positions, with their `asked_under`. The client gives a late answer to the next caller.
        self._unanswered: dict[Partition, Hashable] = {}

    def connect(self) -> None:
        self._connected()

    def partitions(self, topic: str) -> list[Partition]:
        """Return the partitions of a topic that exists."""
        with translated(f"topic {topic}"):
            return [Partition(topic, number) for number in sorted(self._connected().partitions_for_topic(topic))]

    def starts(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Return the first offset of each partition that still exists."""
        return self._offsets(partitions, "beginning")

    def ends(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Return the end of each log's decided part. A reader gets that far, across the markers of transactions too."""
        return self._offsets(partitions, "end")

    def find_since(self, partitions: Collection[Partition], instant: Instant) -> dict[Partition, int]:
        """Return the first offset with a timestamp of `instant` or later, for the partitions that have one."""
        names = {TopicPartition(*each): each for each in partitions}
        with translated(f"the records since {instant}"):
            found = find_since(self._connected(), names, instant, self._settings.call_timeout_ms)
        return {names[name]: offset for name, offset in found.items()}

    def position(self, partition: Partition, asked_under: Hashable) -> Committed | None:
        """Return the position that any member of the group committed last; None if there is none.

        An answer is fresh if its question was asked under the same `asked_under`: by then every worker that could still commit
        was fenced. Waits for up to `undecided_wait_ms`.

        Raises:
            TransportUnavailable: No answer, or the transaction of a worker has not yet decided the position.
        """
        consumer, until = self._connected(), monotonic() + self._settings.undecided_wait_ms / 1000
        known = self._unanswered.get(partition, asked_under)
        try:
            with translated(f"the position of {partition}"):
                if known != asked_under:
                    _committed(consumer, partition, until)
                    del self._unanswered[partition]
                found = _committed(consumer, partition, until)
        except TransportUnavailable as error:
            self._unanswered.setdefault(partition, asked_under)
            text = f"no position of {partition} yet: a worker's last transaction is undecided, or the brokers do not answer"
            raise TransportUnavailable(text) from error
        self._unanswered.pop(partition, None)
        return found

    def close(self) -> None:
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            with translated("closing"):
                consumer.close(timeout_ms=self._settings.undecided_wait_ms)

    def _connected(self) -> KafkaConsumer:
        if self._consumer is None:
            self._consumer = make_client("the brokers", KafkaConsumer, self._options)
        return self._consumer

    def _offsets(self, partitions: Collection[Partition], which: Literal["beginning", "end"]) -> dict[Partition, int]:
        if not partitions:
            return {}
        names = {TopicPartition(*each): each for each in partitions}
        with translated(f"the log of {next(iter(partitions))}"):
            found = find_offsets(self._connected(), names, which, self._settings.call_timeout_ms)
        return {names[name]: offset for name, offset in found.items()}


def _committed(consumer: KafkaConsumer, partition: Partition, until: float) -> Committed | None:
    remaining_ms = max(1, round((until - monotonic()) * 1000))
    found = consumer.committed(TopicPartition(*partition), metadata=True, timeout_ms=remaining_ms)
    return None if found is None else Committed(found.offset, found.metadata or "")


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
