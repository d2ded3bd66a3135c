"""Sends simulated lines to the topic that the Kafka transport reads."""

from contextlib import closing
from functools import partial
from typing import Any

from guardian.backoff import RetryWithBackoff
from notification_service.connectors.kafka.client import to_transport_error
from notification_service.connectors.kafka.core.records import ProducerRecord
from notification_service.connectors.kafka.producer import IdempotentProducer, partition_of
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.connectors.kafka.topics import Topics
from notification_service.simulator.generate.input import Input, read_line

_LINES_PER_FLUSH = 5_000
_FLUSH_SECONDS = 300
"""How long to wait for a broker during a simulation. A simulation cut short is useless: its expectations are incomplete."""
_REPORT_SECONDS = 5


class KafkaInput(Input):
    """Sends a line's key, headers and value as a record. A line that is no record is sent as a value, byte for byte.

    Keys select partitions as in all Kafka clients. `retry` logs while the brokers do not answer.
    """

    def __init__(self, settings: KafkaSettings, retry: RetryWithBackoff) -> None:
        self._topic = settings.topics.input
        self._retry = retry
        with closing(Topics(settings.without_facts())) as topics:
            self._partitions = topics.look().partitions
        own = {"max_request_size": 4 * settings.max_value_bytes, "delivery_timeout_ms": 1_000 * _FLUSH_SECONDS}
        self._producer = IdempotentProducer("the input", settings, **own)
        self._sent: list[Any] = []

    def close(self) -> None:
        self._producer.close(_FLUSH_SECONDS)

    def partition_of(self, key: bytes) -> int:
        return partition_of(key, self._partitions)

    def append(self, partition: int, line: bytes) -> None:
        self._sent.append(self._send(partition, line))
        if len(self._sent) >= _LINES_PER_FLUSH:
            self.flush()

    def append_and_tell(self, partition: int, line: bytes) -> int:
        future = self._send(partition, line)
        self._sent.append(future)
        self.flush()
        return int(future.value.offset)

    def flush(self) -> None:
        """Wait until all sent lines have arrived; raise the error of one that has not."""
        # A record that the client gave up after `_FLUSH_SECONDS` counts as done, too.
        self._retry.until_answered("input", partial(self._producer.flush, self._sent, _REPORT_SECONDS))
        failed = next((each for each in self._sent if each.failed()), None)
        self._sent = []
        if failed is not None:
            raise to_transport_error("the input", failed.exception)

    def _send(self, partition: int, line: bytes) -> Any:
        record = read_line(line)
        return self._producer.send(ProducerRecord(self._topic, record.key, record.headers, record.value, partition))
