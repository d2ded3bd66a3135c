"""The smallest loop from Kafka to Kafka exactly once: poll, and one transaction per poll.

Its clients have the options and limits of the service's. Each input record makes one output record of a notification's size, with
the same headers and value except for the record's key and position. Nothing is decoded, ordered, remembered or checked. The
ownership of partitions, and the outcome of a transaction, are the matter of the client.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition

from guardian.headers import SOURCE_POSITION
from notification_service.connectors.kafka.settings import KafkaSettings

Headers = Sequence[tuple[str, bytes]]


class KafkaLoop:
    """One member of a group of its own, with its producer."""

    def __init__(self, settings: KafkaSettings, headers: Headers, value: bytes) -> None:
        self._topic = settings.topics.notifications
        self._headers = [each for each in headers if each[0] != SOURCE_POSITION]
        self._value = value
        self._consumer = KafkaConsumer(settings.topics.input, **settings.consumer | {"auto_offset_reset": "earliest"})
        self._producer = KafkaProducer(**settings.producer)
        self._producer.init_transactions()

    def join(self, partitions: int) -> None:
        """Poll until this member has so many partitions. Nothing is read before: a poll that has records ignores the group.

        A join that is answered between two polls would begin again.
        """
        while len(self._consumer.assignment()) < partitions:
            self._consumer.poll(timeout_ms=5_000, max_records=1)
            self._consumer.pause(*self._consumer.assignment())
        self._consumer.seek_to_beginning()
        self._consumer.resume(*self._consumer.paused())

    def run(self, records: int, batch_size: int) -> None:
        """Pass on so many records, at most `batch_size` per transaction."""
        while records > 0:
            polled = self._consumer.poll(timeout_ms=500, max_records=batch_size)
            if polled:
                self._pass_on(polled)
            records -= sum(map(len, polled.values()))

    def close(self) -> None:
        self._consumer.close(autocommit=False)
        self._producer.close()

    def _pass_on(self, polled: dict[TopicPartition, list[Any]]) -> None:
        producer = self._producer
        producer.begin_transaction()
        for output in self._output(polled):
            producer.send(*output)
        offsets = {each: OffsetAndMetadata(records[-1].offset + 1, "", -1) for each, records in polled.items()}
        producer.send_offsets_to_transaction(offsets, self._consumer.group_metadata())
        producer.flush()
        producer.commit_transaction()

    def _output(self, polled: dict[TopicPartition, list[Any]]) -> Iterator[tuple[Any, ...]]:
        """Yield what is sent for the records, as arguments of the producer."""
        topic, headers, value = self._topic, self._headers, self._value
        for records in polled.values():
            for record in records:
                position = f"{record.topic}-{record.partition}@{record.offset}".encode()
                yield topic, value, record.key, [*headers, (SOURCE_POSITION, position)]
