"""A topic as a replayable start: records are sent by an idempotent producer, and each is awaited."""

from collections.abc import Sequence
from contextlib import closing

from notification_service.bridge.runner import TooLarge
from notification_service.connectors.kafka.client import text_of, to_transport_error
from notification_service.connectors.kafka.core.records import ProducerRecord, size_of
from notification_service.connectors.kafka.producer import IdempotentProducer, NotTaken, partition_of
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.connectors.kafka.topics import Right, Topics
from notification_service.connectors.line_format import Line

_GRACE_SECONDS = 5


class KafkaStart:
    """An open start: the topic `settings.topics.input`. A record goes to the partition that Kafka's partitioner gives for its
    key.

    After a failure it must be closed: batches may still be on their way.

    Raises of the constructor:
        TransportUnavailable: The brokers do not answer.
        TransportRefused: The topic or a right is missing.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._topic = settings.topics.input
        self._timeout_seconds = settings.transaction_timeout_ms / 1000 + _GRACE_SECONDS
        with closing(Topics(settings, of_input=Right.WRITE)) as topics:
            topics.look()
        # What is too large is refused by the topic alone, whose limit an operator can raise.
        self._producer = IdempotentProducer(f"topic {self._topic}", settings, max_request_size=2**31 - 1)
        try:
            self._producer.partitions(self._topic)
        except BaseException:
            self.close()
            raise

    def append(self, lines: Sequence[Line]) -> None:
        """Send the lines, and wait until all replicas in sync have them. Raises: as its port."""
        count = len(self._producer.partitions(self._topic))
        records = [
            ProducerRecord(self._topic, each.key, each.headers, _value_of(each), partition_of(each.key or b"", count))
            for each in lines
        ]
        try:
            self._producer.append_all(records, self._timeout_seconds)
        except NotTaken as error:
            if not error.is_too_large:
                raise to_transport_error(f"topic {self._topic}", error.error) from error
            line = lines[error.at]
            size = size_of(line.key, line.headers, line.value)
            problem = f"it does not take a message of {size} bytes ({text_of(error.error)}). Raise its max.message.bytes"
            raise TooLarge(f"topic {self._topic}", problem) from error

    def close(self) -> None:
        """Returns at once, in any state."""
        self._producer.discard()


def _value_of(line: Line) -> bytes | None:
    """The value. One that is null becomes empty if there is no key: the client (kafka-python 3.0.12) refuses both together."""
    return line.content if line.key is None else line.value
