"""Contains the damage of unreadable records: their partition stops, and the others go on."""

from functools import partial
from typing import Any

from kafka import TopicPartition
from kafka.consumer.fetcher import Fetcher
from kafka.errors import CorruptRecordError, KafkaError, OffsetOutOfRangeError, TopicAuthorizationFailedError

_FOR_A_PERSON = (OffsetOutOfRangeError, TopicAuthorizationFailedError)
"""Errors of one partition that stop the reading of all partitions."""


class _Records(Fetcher.PartitionRecords):  # type: ignore[misc]  # kafka-python ships no types.
    """The fetched records of a partition, up to the first unreadable one.

    kafka-python 3.0.12 raises that error instead of returning other partitions' records, and the next call loops for ever.
    """

    def __init__(self, found: dict[TopicPartition, KafkaError], *fetched: Any, **options: Any) -> None:
        self._found = found
        super().__init__(*fetched, **options)

    def _unpack_records(self, tp: TopicPartition, *rest: Any) -> Any:
        try:
            yield from super()._unpack_records(tp, *rest)
        except Exception as error:  # noqa: BLE001 - A codec may raise anything on damaged bytes.
            self._found[tp] = error if isinstance(error, KafkaError) else CorruptRecordError(f"{type(error).__name__}: {error}")
            self.drain()


class Unreadable:
    """Makes a fetcher remember why a partition is unreadable, and go on with the other partitions."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._found: dict[TopicPartition, KafkaError] = {}
        self._parse_fetched_data = fetcher._parse_fetched_data  # noqa: SLF001 - The client offers no other way.
        fetcher._parse_fetched_data = self._parse  # noqa: SLF001
        fetcher.PartitionRecords = partial(_Records, self._found)

    def take(self) -> dict[TopicPartition, KafkaError]:
        """Return what was found since the last call, and reset it."""
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
