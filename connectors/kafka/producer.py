"""A transactional producer, good for as long as everything succeeds.

After any failure it is thrown away and a new one is made, which by its `init_transactions` ends whatever was open. The client's
own recovery is not relied upon (seen in kafka-python 3.0.12): after a transaction that the group refused, it sends the refused
offsets along with the next one, and the brokers take them; and a commit may be told as done though a batch failed and the
transaction was aborted.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Thread
from time import monotonic
from typing import Any, TypeAlias

from kafka import KafkaProducer, OffsetAndMetadata, TopicPartition, errors
from kafka.structs import ConsumerGroupMetadata

from connectors.kafka.client import make_client
from connectors.kafka.core.fencing import Committed
from connectors.kafka.core.records import ProducerRecord
from connectors.kafka.errors import translated
from connectors.kafka.quick_producer import QuickProducer
from connectors.kafka.time_limit import Bounded
from domain.record import Partition

Positions: TypeAlias = Mapping[Partition, Committed]

_CLOSE_SECONDS = 1
_LOG = logging.getLogger(__name__)


class NotTaken(Exception):
    """The brokers will never take the record at this place of what was to be sent. Nothing of it was committed."""

    def __init__(self, at: int, error: errors.KafkaError) -> None:
        super().__init__(str(error))
        self.at = at
        self.error = error


class TransactionalProducer:
    """Made with its predecessor's transaction ended: what that wrote is decided from then on, and it can write no more."""

    def __init__(self, options: Mapping[str, Any], timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._bounded = Bounded()
        self._producer: KafkaProducer = make_client("the output", QuickProducer, options)
        try:
            with translated("the output"):
                self._producer.init_transactions()
        except BaseException:
            self.discard()
            raise

    def commit(self, records: Sequence[ProducerRecord], positions: Positions, group: ConsumerGroupMetadata) -> None:
        """All of it in one transaction.

        Raises:
            NotTaken: One of the records is the reason; nothing was committed.
            KafkaError: Anything else; only for CommitFailedError and FencedInstanceIdError is it certain that nothing was
                committed.
        """
        try:
            self._commit(records, positions, group)
        except errors.KafkaError as error:
            raise _first_failure(error) from error.__cause__

    def _commit(self, records: Sequence[ProducerRecord], positions: Positions, group: ConsumerGroupMetadata) -> None:
        until = monotonic() + self._timeout_ms / 1000
        offsets = {TopicPartition(*each): OffsetAndMetadata(*position, -1) for each, position in positions.items()}
        self._producer.begin_transaction()
        self._within(until, lambda: self._producer.send_offsets_to_transaction(offsets, group))
        futures = [self._send(at, each) for at, each in enumerate(records)]
        self._await(futures, until)
        self._within(until, self._producer.commit_transaction)

    def close(self) -> None:
        """For one that has nothing open."""
        self._bounded.close()
        with suppress(errors.KafkaError):
            self._producer.close(timeout=_CLOSE_SECONDS)

    def discard(self) -> None:
        """For any other. Returns at once; the client needs until its batches have expired to end its thread."""
        self._bounded.close()
        Thread(target=_close_at_last, args=(self._producer,), name="kafka-discard", daemon=True).start()

    def _send(self, at: int, record: ProducerRecord) -> Any:
        try:
            return self._producer.send(record.topic, record.value, record.key, list(record.headers))
        except errors.MessageSizeTooLargeError as error:
            raise NotTaken(at, error) from error

    def _await(self, futures: Sequence[Any], until: float) -> None:
        """That every record has arrived: neither the flush nor the commit says so. A flush gives up when a batch is split."""
        while not all(future.is_done for future in futures):
            with suppress(errors.UnknownError):
                self._within(until, self._producer.flush)
        for at, future in enumerate(futures):
            if future.failed():
                raise _reason(at, future.exception)

    def _within(self, until: float, call: Any) -> None:
        left_ms = round((until - monotonic()) * 1000)
        if left_ms <= 0:
            raise errors.KafkaTimeoutError("the time for the transaction is up")
        self._bounded.call(call, left_ms)


def _first_failure(error: errors.KafkaError) -> errors.KafkaError:
    """Once something of a transaction has failed, the client's next call raises another error, which has that one in it."""
    return next((each for each in error.args if isinstance(each, errors.KafkaError)), error)


def _reason(at: int, error: BaseException) -> BaseException:
    return NotTaken(at, error) if isinstance(error, _NEVER_TAKEN) else error


_NEVER_TAKEN = (errors.MessageSizeTooLargeError, errors.RecordListTooLargeError, errors.InvalidRecordError)


def _close_at_last(producer: KafkaProducer) -> None:
    """The client refuses to be closed, and goes on, while a batch of it is on its way."""
    while True:
        try:
            producer.close(timeout=_CLOSE_SECONDS)
        except errors.KafkaError:
            continue
        return
