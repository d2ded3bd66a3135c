"""The two producers: one of transactions, and one for records that belong to none.

That of transactions is used until its first failure. Then it is discarded and a new one is made; its `init_transactions` ends any
open transaction. The client's own recovery is not used, because of two defects seen in kafka-python 3.0.12. After the group has
refused a transaction, the client sends the refused offsets along with the next transaction, and the brokers accept them. And a
commit may be reported as done although a batch failed and the transaction was aborted.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from struct import iter_unpack
from threading import Thread
from time import monotonic
from typing import Any, TypeAlias
from zlib import crc32

from kafka import KafkaProducer, OffsetAndMetadata, TopicPartition, errors
from kafka.structs import ConsumerGroupMetadata

from notification_service.connectors.kafka.client import Bounded, make_client, to_transport_error, translated
from notification_service.connectors.kafka.core.fencing import Committed
from notification_service.connectors.kafka.core.records import ProducerRecord
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.events.identifiers import MAX_LENGTH
from resequencer.clock import Instant
from resequencer.record import Partition

_PLAIN_BYTES = 64 << 10
"""Longer values are sent by the client's own code, which checks the size again."""

_KEYS, _KEY_BYTES = 1 << 14, 4 * MAX_LENGTH
"""How many keys' partitions are cached, and the longest key cached. A longer key is no unit's id, but that of a dead letter."""

_MASK, _MIX = 0xFFFFFFFF, 0x5BD1E995


class QuickProducer(KafkaProducer):  # type: ignore[misc]  # kafka-python ships no types.
    """Sends the only form that occurs here: bytes in a transaction, with a key or a partition, to a known topic. None is null.

    For each record the client (3.0.12) looks up the topics, sorts their partitions, and computes the key's hash byte by byte.
    It checks each header's type and the transaction's state, and wakes its sender when a batch is full. That took longer than
    writing the record. The client also waits for the brokers' answer to the offsets before it writes the first record; here the
    wait comes before the commit.
    """

    def begin_transaction(self) -> None:
        self._joined: set[TopicPartition] = set()
        self._offsets: Any = None
        super().begin_transaction()

    def send_offsets_to_transaction(self, offsets: Any, group_metadata: Any) -> None:
        """Start sending the offsets and return at once. If the brokers refuse them, the next call raises the error."""
        self._offsets = self._transaction_manager.send_offsets_to_transaction(offsets, group_metadata)
        self._sender.wakeup()

    def commit_transaction(self) -> None:
        if self._offsets is not None:
            self._offsets.wait()
        super().commit_transaction()

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: list[tuple[str, bytes]],
        number: int | None = None,
        timestamp: Instant | None = None,
    ) -> Any:
        if self._offsets is not None and self._offsets.failed:
            raise self._offsets.exception
        partitions = self._metadata.partitions_for_topic(topic)
        if not partitions or (key is None if number is None else number not in partitions):
            return super().send(topic, value, key, headers, number, timestamp)
        partition = TopicPartition(topic, partition_of(key or b"", len(partitions)) if number is None else number)
        if len(value or b"") > _PLAIN_BYTES or len(key or b"") > _KEY_BYTES:
            return super().send(topic, value, key, headers, partition.partition, timestamp)
        if partition not in self._joined:
            self._transaction_manager.maybe_add_partition_to_transaction(partition)
            self._joined.add(partition)
        future, _, is_new, _ = self._accumulator.append(partition, timestamp, key, value, headers)
        if is_new:
            self._sender.wakeup()
        return future


def partition_of(key: bytes, count: int) -> int:
    """Return the partition of `count` that all Kafka clients choose: by the positive murmur2 of the key.

    A key too long for a unit's id may have megabytes, for which murmur2 takes seconds; it is placed by its checksum.
    """
    return _partition_of_id(key, count) if len(key) <= _KEY_BYTES else crc32(key) % count


@lru_cache(_KEYS)
def _partition_of_id(key: bytes, count: int) -> int:
    return (_murmur2(key) & 0x7FFFFFFF) % count


def _murmur2(data: bytes) -> int:
    """MurmurHash2, 32 bits, with the seed of Kafka's `Utils.murmur2`."""
    length = len(data)
    whole = length & ~3
    mixed = 0x9747B28C ^ length
    for (word,) in iter_unpack("<I", data[:whole]):
        word = word * _MIX & _MASK
        mixed = mixed * _MIX & _MASK ^ (word ^ word >> 24) * _MIX & _MASK
    if remainder := data[whole:]:
        mixed = (mixed ^ int.from_bytes(remainder, "little")) * _MIX & _MASK
    mixed = (mixed ^ mixed >> 13) * _MIX & _MASK
    return mixed ^ mixed >> 15


Positions: TypeAlias = Mapping[Partition, Committed]
Place: TypeAlias = tuple[Partition, int]
"""Where a record is: its partition and its offset."""

FENCED = (errors.ProducerFencedError, errors.InvalidProducerEpochError)
"""What a producer gets whose transactional id another one has taken."""

_CLOSE_SECONDS = 1

_OF_A_TIME = re.compile(r"\bTimestamp -?\d+ of message\b|\binvalid timestamp\b")
"""What the brokers write of records whose timestamps their topic does not take. No topic's name has a blank."""
_TAKEN_TIMES = re.compile(r"\bshould be within \[(-?\d+), (-?\d+)\]")


class NotTaken(Exception):
    """The brokers will never accept the record at index `at` of those to be sent. Nothing was committed."""

    def __init__(self, at: int, error: errors.KafkaError) -> None:
        super().__init__(str(error))
        self.at = at
        self.error = error

    @property
    def is_too_large(self) -> bool:
        return not isinstance(self.error, errors.InvalidRecordError | errors.InvalidTimestampError)

    @property
    def is_for_its_time(self) -> bool:
        """Whether the topic does not take timestamps. Of several in a batch the client (3.0.12) keeps the broker's text alone.

        Every text of a broker has the topic's name, which may be about timestamps, too.
        """
        is_one = isinstance(self.error, errors.InvalidTimestampError)
        return is_one or (isinstance(self.error, errors.InvalidRecordError) and _OF_A_TIME.search(str(self.error)) is not None)

    @property
    def taken_times(self) -> range:
        """The timestamps that the topic took when it refused this one, as far as the brokers say it; empty if they do not."""
        found = _TAKEN_TIMES.search(str(self.error))
        return range(int(found[1]), int(found[2]) + 1) if found else range(0)


class TransactionalProducer:
    """A producer. Making one ends its predecessor's transaction and fences the predecessor."""

    def __init__(self, options: Mapping[str, Any], timeout_ms: int, what: str = "the output") -> None:
        self._timeout_ms = timeout_ms
        self._bounded = Bounded()
        self._until = 0.0
        self._futures: list[Any] = []
        self._producer: KafkaProducer = make_client(what, QuickProducer, options)
        try:
            with translated(what):
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

    def send(self, records: Sequence[ProducerRecord]) -> None:
        """Start to send more records of the transaction that was begun; `wait` follows. Raises as `begin`."""
        with _first_failure():
            self._send_all(records)

    def wait(self) -> None:
        """Wait until the records of the last `begin` or `send` have arrived. Raises as `begin`."""
        with _first_failure():
            _await(self._futures, lambda: self._within(self._producer.flush))
            _raise_failure(self._futures)

    def places(self) -> list[Place]:
        """Return where the records are that the last `wait` has waited for."""
        return _places(self._futures)

    def partitions(self, topic: str) -> Collection[int]:
        """Return the numbers of the topic's partitions."""
        found: Collection[int] = self._producer.partitions_for(topic)
        return found

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
        self._futures = [_send(self._producer, at, each) for at, each in enumerate(records)]

    def close(self) -> None:
        """Close a producer that has no open transaction."""
        self._bounded.close()
        with suppress(errors.KafkaError):
            self._producer.close(timeout=_CLOSE_SECONDS)

    def discard(self) -> None:
        """Close a producer in any state. Returns at once; the client's thread ends when its batches have expired."""
        self._bounded.close()
        _discard(self._producer)

    def _within(self, call: Any) -> None:
        remaining_ms = round((self._until - monotonic()) * 1000)
        if remaining_ms <= 0:
            raise errors.KafkaTimeoutError("the time for the transaction is up")
        self._bounded.call(call, remaining_ms)


@contextmanager
def _first_failure() -> Iterator[None]:
    """Raise the first failure of a transaction: the client's later calls raise another error, which holds the first one."""
    try:
        yield
    except errors.KafkaError as error:
        first = next((each for each in error.args if isinstance(each, errors.KafkaError)), error)
        raise first from error.__cause__


_NEVER_TAKEN = (
    errors.MessageSizeTooLargeError,
    errors.RecordListTooLargeError,
    errors.InvalidRecordError,
    errors.InvalidTimestampError,
)

_SIZES = 3
"""The last arguments of a future of the client (3.0.12) are the sizes of key, value and headers of its record."""


class IdempotentProducer:
    """Sends records that belong to no transaction. The brokers take each once, however often the client has to send it.

    `options` are kafka-python's, beside those of the settings. Used from one thread. It connects at the first call. Records that
    were not confirmed in time stay on their way, in front of later ones. Once the brokers have refused a record that was
    appended, the next call connects again: the client (3.0.12) fails whatever follows a refused record.
    """

    def __init__(self, what: str, settings: KafkaSettings, **options: Any) -> None:
        self._what = what
        self._options = {**settings.producer, "transactional_id": None, "enable_idempotence": True, **options}
        self._producer: KafkaProducer | None = None

    def partitions(self, topic: str) -> Collection[int]:
        """Return the numbers of the topic's partitions. Raises as `append`."""
        with translated(self._what):
            found: Collection[int] = self._connected().partitions_for(topic)
        return found

    def append(self, record: ProducerRecord, timeout_seconds: float) -> int:
        """Send the record, wait until all replicas in sync have it, and return its offset.

        Raises:
            TransportUnavailable, TransportRefused: It is not known whether it was written.
        """
        try:
            [(_, offset)] = self.append_all([record], timeout_seconds)
        except NotTaken as error:
            raise to_transport_error(self._what, error.error) from error
        return offset

    def append_all(self, records: Sequence[ProducerRecord], timeout_seconds: float) -> list[Place]:
        """Send the records, wait until all replicas in sync have them, and return where they are.

        Raises:
            NotTaken: The brokers will never accept one of them; others may be written.
            TransportUnavailable, TransportRefused: It is not known which of them were written.
        """
        with translated(self._what):
            futures = [_send(self._connected(), at, each) for at, each in enumerate(records)]
            self._flush(futures, timeout_seconds)
            if any(each.failed() and not each.retriable() for each in futures):
                self.discard()
            _raise_failure(futures)
        return _places(futures)

    def send(self, record: ProducerRecord) -> Any:
        """Start to send the record, and return its future. Raises as `append`.

        It is sent with its batch: when that is full, at a `flush`, or after `linger_ms` of the settings.
        """
        with translated(self._what):
            try:
                return _send(self._connected(), 0, record)
            except NotTaken as error:
                raise error.error from error

    def flush(self, futures: Sequence[Any], timeout_seconds: float) -> None:
        """Wait until what `send` has begun is done: each record has arrived, or its future has the error.

        Raises:
            TransportUnavailable: It is not done in time. Call it again.
        """
        with translated(self._what):
            self._flush(futures, timeout_seconds)

    def close(self, timeout_seconds: float = _CLOSE_SECONDS) -> None:
        """Wait for so long for records that are on their way, then close as `discard`."""
        producer, self._producer = self._producer, None
        if producer is not None:
            try:
                producer.close(timeout=timeout_seconds)
            except errors.KafkaError:
                _discard(producer)

    def discard(self) -> None:
        """Close a producer in any state. Returns at once; the client's thread ends when its batches have expired."""
        producer, self._producer = self._producer, None
        if producer is not None:
            _discard(producer)

    def _connected(self) -> KafkaProducer:
        if self._producer is None:
            self._producer = make_client(self._what, KafkaProducer, self._options)
        return self._producer

    def _flush(self, futures: Sequence[Any], timeout_seconds: float) -> None:
        until = monotonic() + timeout_seconds

        def flush() -> None:
            if (remaining := until - monotonic()) <= 0:
                raise errors.KafkaTimeoutError("the records were not confirmed in time")
            self._connected().flush(remaining)

        _await(futures, flush)


def _send(producer: KafkaProducer, at: int, record: ProducerRecord) -> Any:
    topic, key, headers, value, number, timestamp, lane = record
    if key is None and number is None and (value is None or lane is not None):
        # Without a key the client would choose any partition; without key and value it sends only what has one.
        number = partition_of(lane or b"", len(producer.partitions_for(topic)))
    try:
        return producer.send(topic, value, key, list(headers), number, timestamp)
    except errors.MessageSizeTooLargeError as error:
        raise NotTaken(at, error) from error


def _await(futures: Sequence[Any], flush: Callable[[], object]) -> None:
    """Flush until every record has arrived or failed. A flush ends early if a batch is split."""
    while not all(future.is_done for future in futures):
        with suppress(errors.UnknownError):
            flush()


def _raise_failure(futures: Sequence[Any]) -> None:
    """Raise the failure of a record that has one: neither flush nor commit reports it.

    The client (3.0.12) fails all that was not sent yet with the error of a record that the brokers refuse. The brokers answered
    for that record's batch, and not for the others. If it is still unknown which one it was, the error was about the largest of
    them if it was about the size.
    """
    failures = [NotTaken(at, each.exception) for at, each in enumerate(futures) if each.failed()]
    refused = [each for each in failures if isinstance(each.error, _NEVER_TAKEN)]
    if refused:
        answered = [each for each in refused if futures[each.at]._produce_future.succeeded()]  # noqa: SLF001
        raise max(answered or refused, key=lambda each: sum(futures[each.at].args[-_SIZES:]) if each.is_too_large else 0)
    if failures:
        raise failures[0].error


def _places(futures: Sequence[Any]) -> list[Place]:
    return [(Partition(each.value.topic, each.value.partition), each.value.offset) for each in futures]


def _discard(producer: KafkaProducer) -> None:
    Thread(target=_close_at_last, args=(producer,), name="kafka-discard", daemon=True).start()


def _close_at_last(producer: KafkaProducer) -> None:
    """Close the client; it refuses to close, and keeps running, while one of its batches is on its way."""
    while True:
        try:
            producer.close(timeout=_CLOSE_SECONDS)
        except errors.KafkaError:
            continue
        return
