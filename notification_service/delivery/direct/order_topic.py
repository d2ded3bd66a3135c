"""Gives orders to the owner of a partition, and finds their outcomes."""

from collections.abc import Callable
from contextlib import closing, suppress
from time import monotonic

from kafka import KafkaProducer, errors

from notification_service.connectors.kafka.client import make_client, translated
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
        left_out = ("transactional_id", "transaction_timeout_ms")
        options = {name: value for name, value in self._settings.producer.items() if name not in left_out}
        producer = make_client(self._topic, KafkaProducer, {**options, "enable_idempotence": True, "linger_ms": 0})
        seconds = self._settings.call_timeout_ms / 1_000
        try:
            with translated(self._topic):
                if partition.number not in producer.partitions_for(self._topic):
                    raise OrderRefused(f"{partition} does not exist")
                future = producer.send(self._topic, encode(order), order.id.encode(), partition=partition.number)
                producer.flush(timeout=seconds)
                return int(future.get(timeout=seconds).offset)
        finally:
            with suppress(errors.KafkaError):
                producer.close(timeout=1)

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
