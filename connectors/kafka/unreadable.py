"""What cannot be read of a partition: it costs its partition, and the others go on."""

from functools import partial
from typing import Any

from kafka import TopicPartition
from kafka.consumer.fetcher import Fetcher
from kafka.errors import CorruptRecordError, KafkaError, OffsetOutOfRangeError, TopicAuthorizationFailedError

_FOR_A_PERSON = (OffsetOutOfRangeError, TopicAuthorizationFailedError)
"""What these tell of a partition ends the reading of all."""


class _Records(Fetcher.PartitionRecords):  # type: ignore[misc]  # kafka-python ships no types.
    """What was fetched of a partition, up to what cannot be read.

    kafka-python 3.0.12 raises it in place of the records of other partitions, and at the next call never leaves its loop.
    """

    def __init__(self, found: dict[TopicPartition, KafkaError], *fetched: Any, **options: Any) -> None:
        self._found = found
        super().__init__(*fetched, **options)

    def _unpack_records(self, tp: TopicPartition, *rest: Any) -> Any:
        try:
            yield from super()._unpack_records(tp, *rest)
        except Exception as error:  # noqa: BLE001 - Whatever a codec raises at bytes that are not its own.
            self._found[tp] = error if isinstance(error, KafkaError) else CorruptRecordError(f"{type(error).__name__}: {error}")
            self.drain()


class Unreadable:
    """Has a fetcher keep why a partition cannot be read from its position on, and go on with the others."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._found: dict[TopicPartition, KafkaError] = {}
        self._parse_fetched_data = fetcher._parse_fetched_data  # noqa: SLF001 - There is no other way to it.
        fetcher._parse_fetched_data = self._parse  # noqa: SLF001
        fetcher.PartitionRecords = partial(_Records, self._found)

    def take(self) -> dict[TopicPartition, KafkaError]:
        """What was found since the last call."""
        found = dict(self._found)
        self._found.clear()
        return found

    def _parse(self, completed: Any) -> Any:
        try:
            return self._parse_fetched_data(completed)
        except _FOR_A_PERSON:
            raise
        except KafkaError as error:
            self._found[completed.topic_partition] = error
            return None
