"""Reads the logs' ends and the group's positions, with a client of its own.

On the group member's connection such a call would wait behind a fetch, for up to `fetch.max.wait.ms`.
"""

from collections.abc import Collection, Hashable
from time import monotonic
from typing import Literal

from kafka import KafkaConsumer, TopicPartition

from guardian.ports import TransportUnavailable
from notification_service.connectors.kafka.client import make_client, translated
from notification_service.connectors.kafka.core.fencing import Committed
from notification_service.connectors.kafka.offset_queries import find_offsets, find_since
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
    left_ms = max(1, round((until - monotonic()) * 1000))
    found = consumer.committed(TopicPartition(*partition), metadata=True, timeout_ms=left_ms)
    return None if found is None else Committed(found.offset, found.metadata or "")
