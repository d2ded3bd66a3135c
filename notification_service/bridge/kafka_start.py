"""A topic as a replayable start: records are sent by an idempotent producer, and each is awaited."""

from collections.abc import Sequence
from contextlib import closing, suppress
from threading import Thread
from time import monotonic
from typing import Any

from kafka import KafkaProducer, errors

from notification_service.bridge.runner import TooLarge
from notification_service.connectors.kafka.client import make_client, text_of, to_transport_error, translated
from notification_service.connectors.kafka.core.records import size_of
from notification_service.connectors.kafka.producer import close_at_last, partition_of
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.connectors.kafka.topics import Right, Topics
from notification_service.connectors.line_format import Line

_GRACE_SECONDS = 5
_NEVER_TAKEN = (errors.MessageSizeTooLargeError, errors.RecordListTooLargeError)


class KafkaStart:
    """An open start: the topic `settings.topics.input`. A record goes to the partition that Kafka's partitioner gives for its
    key.

    After a failure it must be closed: batches may still be on their way.

    Raises of the constructor:
        TransportUnavailable: The brokers do not answer.
        TransportRefused: The topic or a right is missing.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._topic, self._settings = settings.topics.input, settings
        with closing(Topics(settings, of_input=Right.WRITE)) as topics:
            topics.look()
        # What is too large is refused by the topic alone, whose limit an operator can raise.
        own = {"transactional_id": None, "enable_idempotence": True, "max_request_size": 2**31 - 1, "linger_ms": 100}
        self._producer: KafkaProducer = make_client("the start", KafkaProducer, {**settings.producer, **own})

    def append(self, lines: Sequence[Line]) -> None:
        """Send the lines, and wait until all replicas in sync have them. Raises: as its port."""
        with translated(f"topic {self._topic}"):
            count = len(self._producer.partitions_for(self._topic))
            sent = [self._send(each, count) for each in lines]
            self._await(sent)
        for line, each in zip(lines, sent, strict=True):
            if each.failed():
                raise self._failed(line, each.exception)

    def close(self) -> None:
        """Returns at once; the client's thread ends when its batches have expired."""
        Thread(target=close_at_last, args=(self._producer,), name="kafka-discard", daemon=True).start()

    def _send(self, line: Line, count: int) -> Any:
        number = partition_of(line.key or b"", count)
        try:
            return self._producer.send(self._topic, line.value, line.key, list(line.headers), partition=number)
        except errors.MessageSizeTooLargeError as error:
            raise self._failed(line, error) from error

    def _await(self, sent: Sequence[Any]) -> None:
        """Wait until each has an outcome. A flush ends early if a batch is split."""
        until = monotonic() + self._settings.transaction_timeout_ms / 1000 + _GRACE_SECONDS
        while not all(each.is_done for each in sent):
            if (left := until - monotonic()) <= 0:
                raise errors.KafkaTimeoutError("the records were not confirmed in time")
            with suppress(errors.UnknownError):
                self._producer.flush(left)

    def _failed(self, line: Line, error: BaseException) -> Exception:
        if isinstance(error, _NEVER_TAKEN):
            size = size_of(line.key, line.headers, line.value)
            problem = f"it does not take a message of {size} bytes ({text_of(error)}). Raise its max.message.bytes"
            return TooLarge(f"topic {self._topic}", problem)
        return to_transport_error(f"topic {self._topic}", error)
