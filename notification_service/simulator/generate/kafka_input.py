"""Sends simulated lines to the topic that the Kafka transport reads."""

from types import TracebackType
from typing import Any, Self

from kafka import KafkaProducer, errors
from kafka.partitioner.default import murmur2

from guardian.backoff import RetryWithBackoff
from notification_service.connectors.kafka.client import make_client, to_transport_error, translated
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.connectors.kafka.topics import Topics
from notification_service.connectors.line_format import Defect, Line, decode_line

_LINES_PER_FLUSH = 5_000
_FLUSH_SECONDS = 300
"""How long to wait for a broker during a simulation. A simulation cut short is useless: its expectations are incomplete."""
_SAY_SECONDS = 5


class KafkaInput:
    """Sends a line's key, headers and value as a record. A line that is no record is sent as a value, byte for byte.

    Keys select partitions as in all Kafka clients. `retry` logs while the brokers do not answer.
    """

    def __init__(self, settings: KafkaSettings, retry: RetryWithBackoff) -> None:
        self._topic = settings.topics.input
        self._retry = retry
        topics = Topics(settings.without_facts())
        try:
            self._partitions = topics.look().partitions
        finally:
            topics.close()
        own = {"transactional_id": None, "max_request_size": 4 * settings.max_value_bytes}
        own["delivery_timeout_ms"] = 1_000 * _FLUSH_SECONDS
        self._producer: KafkaProducer = make_client("the input", KafkaProducer, {**settings.producer, **own})
        self._sent: list[Any] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if error is None:
                self.flush()
        finally:
            self._producer.close(timeout=_FLUSH_SECONDS)

    def partition_of(self, key: bytes) -> int:
        return int(murmur2(key) & 0x7FFFFFFF) % self._partitions

    def append(self, partition: int, line: bytes) -> None:
        self._sent.append(self._send(partition, line))
        if len(self._sent) >= _LINES_PER_FLUSH:
            self.flush()

    def append_and_tell(self, partition: int, line: bytes) -> int:
        future = self._send(partition, line)
        self.flush()
        with translated("the input"):
            return int(future.get(timeout=_FLUSH_SECONDS).offset)

    def flush(self) -> None:
        """Wait until all sent lines have arrived; raise the error of one that has not."""
        self._retry.until_answered("input", self._flush_for_a_while)
        failed = next((each for each in self._sent if each.failed()), None)
        self._sent = []
        if failed is not None:
            raise to_transport_error("the input", failed.exception)

    def _flush_for_a_while(self) -> None:
        """Flush for `_SAY_SECONDS`. The client also counts records as flushed that it gave up after `_FLUSH_SECONDS`."""
        with translated("the input"):
            self._producer.flush(timeout=_SAY_SECONDS)

    def _send(self, partition: int, line: bytes) -> Any:
        read = decode_line(line.rstrip(b"\n"))
        record = Line(line.rstrip(b"\n")) if isinstance(read, Defect) else read
        with translated("the input"):
            try:
                return self._producer.send(self._topic, record.value, record.key, list(record.headers), partition)
            except errors.MessageSizeTooLargeError as error:
                raise to_transport_error("the input", error) from error
