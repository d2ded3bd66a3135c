"""The smallest loop from Kafka to Kafka exactly once: poll, and one transaction per poll.

Its clients have the options and limits of the service's. Nothing is decoded, ordered, remembered or checked. The ownership of
partitions, and the outcome of a transaction, are the matter of the client.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition

from benchmarks._runner import Spent, Stopwatch
from guardian.headers import SOURCE_POSITION
from notification_service.connectors.kafka.settings import KafkaSettings

Polled = Mapping[TopicPartition, Sequence[Any]]
Output = Callable[[Polled], Iterator[tuple[Any, ...]]]
"""Yields what is sent for the records, as arguments of the producer."""


def kafka_loop(
    settings: KafkaSettings, output: Output, records: int, batch_size: int, partitions: int, note_ready: Callable[[], None]
) -> Spent:
    """Pass on so many records, at most `batch_size` per transaction, from when the partitions are held."""
    options = settings.consumer | {"auto_offset_reset": "earliest"}
    with (
        closing(KafkaProducer(**settings.producer)) as producer,
        closing(KafkaConsumer(settings.topics.input, **options)) as consumer,
    ):
        producer.init_transactions()
        # Nothing is read before all are held: a poll that has records ignores the group, and a join that is answered between two
        # polls would begin again.
        while len(consumer.assignment()) < partitions:
            consumer.poll(timeout_ms=5_000, max_records=1)
            consumer.pause(*consumer.assignment())
        consumer.seek_to_beginning()
        consumer.resume(*consumer.paused())
        note_ready()
        watch = Stopwatch()
        while records > 0:
            polled = consumer.poll(timeout_ms=500, max_records=batch_size)
            records -= sum(map(len, polled.values()))
            if polled:
                producer.begin_transaction()
                for each in output(polled):
                    producer.send(*each)
                offsets = {each: OffsetAndMetadata(found[-1].offset + 1, "", -1) for each, found in polled.items()}
                producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
                producer.flush()
                producer.commit_transaction()
        return watch.spent()


def one_for_each(topic: str, headers: Mapping[str, str], value: bytes) -> Output:
    """For each record, send one with this value and these headers, except for the record's key and position."""
    others = [(name, text.encode()) for name, text in headers.items() if name != SOURCE_POSITION]

    def output(polled: Polled) -> Iterator[tuple[Any, ...]]:
        for records in polled.values():
            for record in records:
                position = f"{record.topic}-{record.partition}@{record.offset}".encode()
                yield topic, value, record.key, [*others, (SOURCE_POSITION, position)]

    return output
