"""Gives orders to the owner of a partition, and finds their outcomes."""

from collections.abc import Callable
from contextlib import closing, suppress
from time import monotonic

from notification_service.connectors.kafka.core.records import ProducerRecord
from notification_service.connectors.kafka.producer import IdempotentProducer
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.connectors.kafka.topic_reader import CommittedReader
from notification_service.delivery.direct.core.partition import DirectOrder, DirectOutcome, decode, encode
from notification_service.delivery.errors import OrderRefused
from resequencer.record import Partition

_LOOK_SECONDS = 0.2


class OrderTopic:
    """Orders for the partitions of one receiver's source. `settings` are those of its first stage."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings, self._topic = settings, settings.topics.orders

    def give(self, partition: Partition, order: DirectOrder) -> int:
        """Write the order durably, and return its offset.

        Raises:
            OrderRefused: The source has no such partition.
            TransportUnavailable, TransportRefused: It is not known whether the order was written.
        """
        if partition.topic != self._settings.topics.input:
            raise OrderRefused(f"{partition} is no partition of {self._settings.topics.input}")
        with closing(IdempotentProducer(self._topic, self._settings)) as producer:
            if partition.number not in producer.partitions(self._topic):
                raise OrderRefused(f"{partition} does not exist")
            record = ProducerRecord(self._topic, order.id.encode(), (), encode(order), partition.number)
            return producer.append(record, self._settings.call_timeout_ms / 1_000)

    def wait_for_outcome(
        self, partition: Partition, order: DirectOrder, offset: int, seconds: float, pause: Callable[[float], object]
    ) -> DirectOutcome | None:
        """Return the outcome of the order at `offset`; None if it has none after so many seconds."""
        place = Partition(self._topic, partition.number)
        until = monotonic() + seconds
        with closing(CommittedReader(self._settings, [self._topic], {partition.number})) as reader:
            while True:
                reader.seek_only({place: offset})
                for _, records in reader.read(reader.ends()):
                    for each in records:
                        with suppress(ValueError):
                            found = decode(each.value or b"")
                            if isinstance(found, DirectOutcome) and found.id == order.id:
                                return found
                if monotonic() > until:
                    return None
                pause(_LOOK_SECONDS)
