"""A transactional producer that is used until its first failure.

After a failure the producer is discarded and a new one is made; its `init_transactions` ends any open transaction. The client's
own recovery is not used, because of two defects seen in kafka-python 3.0.12. After the group has refused a transaction, the
client sends the refused offsets along with the next transaction, and the brokers accept them. And a commit may be reported as
done although a batch failed and the transaction was aborted.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from threading import Thread
from time import monotonic
from typing import Any, TypeAlias

from kafka import KafkaProducer, OffsetAndMetadata, TopicPartition, errors
from kafka.structs import ConsumerGroupMetadata

from notification_service.connectors.kafka.client import make_client
from notification_service.connectors.kafka.core.fencing import Committed
from notification_service.connectors.kafka.core.records import ProducerRecord
from notification_service.connectors.kafka.errors import translated
from notification_service.connectors.kafka.quick_producer import QuickProducer
from notification_service.connectors.kafka.time_limit import Bounded
from resequencer.record import Partition

Positions: TypeAlias = Mapping[Partition, Committed]

_CLOSE_SECONDS = 1
_LOG = logging.getLogger("resequencer.connectors")


class NotTaken(Exception):
    """The brokers will never accept the record at index `at` of those to be sent. Nothing was committed."""

    def __init__(self, at: int, error: errors.KafkaError) -> None:
        super().__init__(str(error))
        self.at = at
        self.error = error


class TransactionalProducer:
    """A producer. Making one ends its predecessor's transaction and fences the predecessor."""

    def __init__(self, options: Mapping[str, Any], timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._bounded = Bounded()
        self._until = 0.0
        self._futures: list[Any] = []
        self._producer: KafkaProducer = make_client("the output", QuickProducer, options)
        try:
            with translated("the output"):
                self._producer.init_transactions()
        except BaseException:
            self.discard()
            raise

    def commit(self, records: Sequence[ProducerRecord], positions: Positions, group: ConsumerGroupMetadata) -> None:
        """Send the records and commit the positions in one transaction.

        Raises:
            NotTaken: One record was refused for good; nothing was committed.
            KafkaError: Any other failure. Only after CommitFailedError and FencedInstanceIdError is it certain that nothing was
                committed.
        """
        with _first_failure():
            self._begin()
            offsets = {TopicPartition(*each): OffsetAndMetadata(*position, -1) for each, position in positions.items()}
            self._within(lambda: self._producer.send_offsets_to_transaction(offsets, group))
            self._send_all(records)
        self.wait()
        self.end()

    def begin(self, records: Sequence[ProducerRecord]) -> None:
        """Begin a transaction, and start to send the records. `wait` and `end` follow, within the time of the transaction.

        Raises:
            NotTaken: One record was refused for good.
            KafkaError: Any other failure.
        """
        with _first_failure():
            self._begin()
            self._send_all(records)

    def wait(self) -> None:
        """Wait until every record of the transaction has arrived. Raises as `begin`."""
        with _first_failure():
            self._await()

    def end(self) -> None:
        """Commit the transaction.

        Raises:
            KafkaError: It may be committed.
        """
        with _first_failure():
            self._within(self._producer.commit_transaction)

    def _begin(self) -> None:
        self._until = monotonic() + self._timeout_ms / 1000
        self._producer.begin_transaction()

    def _send_all(self, records: Sequence[ProducerRecord]) -> None:
        self._futures = [self._send(at, each) for at, each in enumerate(records)]

    def close(self) -> None:
        """Close a producer that has no open transaction."""
        self._bounded.close()
        with suppress(errors.KafkaError):
            self._producer.close(timeout=_CLOSE_SECONDS)

    def discard(self) -> None:
        """Close a producer in any state. Returns at once; the client's thread ends when its batches have expired."""
        self._bounded.close()
        Thread(target=close_at_last, args=(self._producer,), name="kafka-discard", daemon=True).start()

    def _send(self, at: int, record: ProducerRecord) -> Any:
        try:
            return self._producer.send(record.topic, record.value, record.key, list(record.headers), record.partition)
        except errors.MessageSizeTooLargeError as error:
            raise NotTaken(at, error) from error

    def _await(self) -> None:
        """Neither flush nor commit reports that every record has arrived. A flush ends early if a batch is split."""
        while not all(future.is_done for future in self._futures):
            with suppress(errors.UnknownError):
                self._within(self._producer.flush)
        for at, future in enumerate(self._futures):
            if future.failed():
                raise _reason(at, future.exception)

    def _within(self, call: Any) -> None:
        left_ms = round((self._until - monotonic()) * 1000)
        if left_ms <= 0:
            raise errors.KafkaTimeoutError("the time for the transaction is up")
        self._bounded.call(call, left_ms)


@contextmanager
def _first_failure() -> Iterator[None]:
    """Raise the first failure of a transaction: the client's later calls raise another error, which holds the first one."""
    try:
        yield
    except errors.KafkaError as error:
        first = next((each for each in error.args if isinstance(each, errors.KafkaError)), error)
        raise first from error.__cause__


def _reason(at: int, error: BaseException) -> BaseException:
    return NotTaken(at, error) if isinstance(error, _NEVER_TAKEN) else error


_NEVER_TAKEN = (errors.MessageSizeTooLargeError, errors.RecordListTooLargeError, errors.InvalidRecordError)


def close_at_last(producer: KafkaProducer) -> None:
    """Close the client; it refuses to close, and keeps running, while one of its batches is on its way."""
    while True:
        try:
            producer.close(timeout=_CLOSE_SECONDS)
        except errors.KafkaError:
            continue
        return
