"""Orders and their outcomes on topics. Partition N of both belongs to partition N of the input."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from kafka import KafkaConsumer, TopicPartition, errors

from guardian.ports import GivenOrder, GivenOutcome, OrderBatch, OrderRecord, TransportRefused
from notification_service.connectors.kafka.client import to_transport_error, translated
from notification_service.connectors.kafka.core.records import ProducerRecord
from notification_service.connectors.kafka.log_reader import find_offsets
from notification_service.connectors.kafka.producer import IdempotentProducer
from notification_service.connectors.kafka.record_batch import Unreadable
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.connectors.kafka.topic_reader import CommittedReader, make_consumer
from resequencer.clock import Instant
from resequencer.errors import ResequencerError
from resequencer.order import Order, OrderOutcome, OrderUnreadable, decode_order, decode_outcome, encode_order
from resequencer.record import Partition

_FETCH_WAIT_MS = 1_000
"""How long a broker may keep a fetch open that has nothing to return. A new order answers it at once."""

_EARLIER_MS = 60_000
"""How much before the given instant reading begins: an order's instant is its writer's, the record's timestamp the client's."""

_Decoded = TypeVar("_Decoded", Order, OrderOutcome)


class KafkaOrderSource:
    """Implements `OrderSource` with a consumer of its own, which is assigned the partitions by hand and joins no group.

    Nothing is connected before the first call.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._topic = settings.topics.orders
        self._consumer: KafkaConsumer | None = None
        self._unreadable: Unreadable | None = None
        self._at: dict[Partition, int] = {}

    def bounds(self, partition: Partition) -> range:
        name, limit_ms = self._name(partition), self._settings.call_timeout_ms
        consumer = self._connected(partition.number)
        with translated(self._topic):
            start = find_offsets(consumer, [name], "beginning", limit_ms)[name]
            end = find_offsets(consumer, [name], "end", limit_ms)[name]
        return range(start, end)

    def poll(self, next_offsets: Mapping[Partition, int], max_records: int) -> Mapping[Partition, OrderBatch]:
        if not next_offsets:
            return {}
        consumer = self._connected(max(each.number for each in next_offsets))
        with translated(self._topic):
            self._follow(consumer, next_offsets)
            fetched = consumer.poll(timeout_ms=0, max_records=max_records)
        unreadable = self._unreadable.take() if self._unreadable is not None else {}
        names = {self._name(each): each for each in next_offsets}
        batches: dict[Partition, OrderBatch] = {}
        for name, records in fetched.items():
            if name in names and records:
                partition = names[name]
                batch = OrderBatch(tuple(OrderRecord(each.offset, each.value or b"") for each in records), records[-1].offset + 1)
                batches[partition] = batch
                self._at[partition] = batch.next_offset
        if unreadable and not batches:  # Orders that were read are returned first; the next poll finds the error again.
            name, error = next(iter(unreadable.items()))
            raise to_transport_error(f"{name.topic}-{name.partition} from offset {self._find_at(name)} on", error)
        return batches

    def find_without_outcome(self, partition: Partition) -> Sequence[OrderRecord]:
        topics = self._settings.topics
        given: list[OrderRecord] = []
        known: set[tuple[int, str | None]] = set()
        for topic, each in _read(self._settings, (topics.orders, topics.order_outcomes), [partition], None, is_decided=True):
            if topic == topics.orders:
                given.append(OrderRecord(each.offset, each.value or b""))
                continue
            with suppress(OrderUnreadable):
                outcome = decode_outcome(each.value or b"")
                known.add((outcome.order_offset, None if outcome.order is None else outcome.order.id))
        return [each for each in given if _needs_outcome(each, known)]

    def close(self) -> None:
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            with suppress(errors.KafkaError):
                consumer.close(autocommit=False)

    def _name(self, partition: Partition) -> TopicPartition:
        return TopicPartition(self._topic, partition.number)

    def _find_at(self, name: TopicPartition) -> int | None:
        return next((offset for partition, offset in self._at.items() if self._name(partition) == name), None)

    def _follow(self, consumer: KafkaConsumer, next_offsets: Mapping[Partition, int]) -> None:
        """Assign these partitions, and seek where reading continues elsewhere than where the last poll ended."""
        if self._at.keys() != next_offsets.keys():
            consumer.assign([self._name(each) for each in sorted(next_offsets)])
            self._at = {each: offset for each, offset in self._at.items() if each in next_offsets}
        for partition, offset in next_offsets.items():
            if self._at.get(partition) != offset:
                consumer.seek(self._name(partition), offset)
                self._at[partition] = offset

    def _connected(self, highest: int) -> KafkaConsumer:
        """Return the consumer, after a check that the topic has the partition `highest`."""
        if self._consumer is None:
            own = {"fetch_max_wait_ms": _FETCH_WAIT_MS, "fetch_min_bytes": 1, "auto_offset_reset": "earliest"}
            self._consumer = make_consumer(self._topic, self._settings, **own)
            self._unreadable = Unreadable(self._consumer._fetcher)  # noqa: SLF001 - The client offers no other way.
            self._at = {}
        with translated(self._topic):
            count = len(self._consumer.partitions_for_topic(self._topic) or ())
        if highest >= count:
            raise _too_few(self._topic, count, highest)
        return self._consumer


class KafkaOrderBook:
    """Implements `OrderBook`. Each call of `orders` and `outcomes` reads up to the present ends."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._topic = settings.topics.orders
        self._producer = IdempotentProducer(self._topic, settings)

    def append(self, partition: Partition, order: Order) -> int:
        key = None if order.unit is None else order.unit.encode()
        count = len(self._producer.partitions(self._topic))
        if partition.number >= count:
            raise _too_few(self._topic, count, partition.number)
        record = ProducerRecord(self._topic, key, (), encode_order(order), partition.number)
        return self._producer.append(record, self._settings.call_timeout_ms / 1000)

    def orders(self, partitions: Collection[Partition], since: Instant) -> Sequence[GivenOrder]:
        given = [GivenOrder(*each) for each in _decoded(self._settings, self._topic, partitions, since, decode_order)]
        return sorted(given, key=lambda each: each.order.at)

    def outcomes(self, partitions: Collection[Partition], since: Instant) -> Sequence[GivenOutcome]:
        decoded = _decoded(self._settings, self._settings.topics.order_outcomes, partitions, since, decode_outcome)
        return sorted((GivenOutcome(partition, each) for partition, _, each in decoded), key=lambda each: each.outcome.at)

    def close(self) -> None:
        self._producer.close()


def _too_few(topic: str, count: int, number: int) -> TransportRefused:
    problem = f"it has {count} partitions, but the input has a partition {number}. Give it as many as the input has"
    return TransportRefused(f"topic {topic}", problem)


def _needs_outcome(record: OrderRecord, known: Collection[tuple[int, str | None]]) -> bool:
    try:
        order = decode_order(record.value)
    except OrderUnreadable:
        return (record.offset, None) not in known
    return order.stage is None and (record.offset, order.id) not in known


def _decoded(
    settings: KafkaSettings,
    topic: str,
    partitions: Collection[Partition],
    since: Instant,
    decode: Callable[[bytes], _Decoded],
) -> Iterator[tuple[Partition, int, _Decoded]]:
    """Yield what a topic has since then, with the partition of the input and the offset; not what cannot be read."""
    names = {each.number: each for each in partitions}
    for _, each in _read(settings, (topic,), partitions, since):
        with suppress(OrderUnreadable):
            found = decode(each.value or b"")
            if found.at >= since:
                yield names[each.partition], each.offset, found


def _read(
    settings: KafkaSettings,
    topics: Sequence[str],
    partitions: Collection[Partition],
    since: Instant | None,
    *,
    is_decided: bool = False,
) -> Iterator[tuple[str, Any]]:
    """Yield the topic and each record of these partitions of the topics, up to the present ends.

    With `is_decided` the ends are those at which no transaction is open any more: an outcome that was sent before the call is
    either there, or will never be.
    """
    if not partitions:
        return
    reader = CommittedReader(settings, topics, {each.number for each in partitions})
    try:
        ends = reader.decided_ends() if is_decided else reader.ends()
        if since is None:
            reader.seek_beginnings()
        else:
            reader.seek_instant(max(0, since - _EARLIER_MS))
        for name, records in reader.read(ends):
            yield from ((name.topic, each) for each in records)
    finally:
        with suppress(ResequencerError):
            reader.close()
