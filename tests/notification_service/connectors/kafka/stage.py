"""A stage on a real broker: topics and a group of its own, workers, and an outside client that writes and reads."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from itertools import count
from typing import Any
from uuid import uuid4

from harness.waiting import DEADLINE_SECONDS, wait_until
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.errors import InvalidReplicationFactorError
from msgspec.structs import replace

from guardian.ports import Channel, OutputRecord, PartitionOutput, Polled, Position, PublishRefused, TransportUnavailable
from notification_service.connectors.kafka.core.client_options import KafkaTopics, read_options
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.connectors.kafka.sink import KafkaTransport
from resequencer.record import Headers, Partition, Record
from servers.kafka import KafkaServer

NOW = 1_774_740_835_941
MAX_BYTES = 200_000
START = '["start",0,0]'

# A test does not limit how long an answer takes unless that is its subject: the longest that may be configured.
_PATIENT = {"default.api.timeout.ms": 20_000}
_PATIENT_PRODUCER = {"transaction.timeout.ms": 15_000}


class FixedClock:
    def now(self) -> int:
        return NOW


class KafkaWorker:
    """A transport with the work of a guardian: it drops revoked partitions and takes over new ones.

    `read_to` holds the owned partitions and how far each was read; `records` are the records so far.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self.settings = settings
        self.transport = KafkaTransport(settings, FixedClock())
        self.read_to: dict[Partition, int] = {}
        self.records: list[Record] = []
        self.taken_over: list[Partition] = []

    def follow(self) -> None:
        assigned = set(self.transport.assignment())
        for gone in self.read_to.keys() - assigned:
            del self.read_to[gone]
        for new in sorted(assigned - self.read_to.keys()):
            with suppress(TransportUnavailable, PublishRefused):  # The next poll tries again.
                self.take_over(new)

    def take_over(self, partition: Partition) -> None:
        position = self.transport.position(partition)
        offset = position.offset if position else self.transport.start_offset(partition)
        if position is None:
            self.transport.publish([PartitionOutput(partition, (), Position(offset, START))])
        self.transport.seek(partition, offset)
        self.read_to[partition] = offset
        self.taken_over.append(partition)

    def poll(self, max_records: int = 100, timeout_ms: int = 50) -> Polled:
        self.follow()
        polled = self.transport.poll(max_records, timeout_ms)
        self.records.extend(polled.records)
        self.read_to |= {each: offset for each, offset in polled.next_offsets.items() if each in self.read_to}
        return polled

    def values(self) -> list[bytes]:
        return [each.value for each in self.records]

    def holds(self, *partitions: Partition) -> bool:
        return self.read_to.keys() == set(partitions)

    def has_to_join(self) -> bool:
        """Return whether the client knows that a rebalance has begun."""
        return bool(self.transport._member._consumer._coordinator.need_rejoin())

    def publish(
        self, partition: Partition, *records: OutputRecord, metadata: str = '["m",1,1]', offset: int | None = None
    ) -> None:
        offset = self.read_to[partition] if offset is None else offset
        self.transport.publish([PartitionOutput(partition, records, Position(offset, metadata))])

    def publish_at_last(self, partition: Partition, *records: OutputRecord, metadata: str) -> None:
        """Publish as a guardian does. Refused output stays pending until the rebalance is over. If the partition was revoked
        meanwhile, it is taken over again, and its position shows whether the output is published.
        """
        position = Position(self.read_to[partition], metadata)

        def try_it() -> bool:
            taken_over = len(self.taken_over)
            with suppress(PublishRefused, TransportUnavailable):
                if self.read_to.get(partition) == position.offset:
                    self.publish(partition, *records, metadata=metadata)
                    return True
            with suppress(TransportUnavailable):
                self.poll(max_records=int(self.read_to.get(partition, 0) < position.offset))
                return len(self.taken_over) > taken_over and self._is_published(position, partition)
            return False

        wait_until(try_it, "the publication")

    def _is_published(self, position: Position, partition: Partition) -> bool:
        return partition in self.read_to and self.transport.position(partition) == position


class KafkaStage:
    """With `has_orders` there are topics for orders and their outcomes, with `has_facts` one for facts."""

    def __init__(
        self,
        kafka: KafkaServer,
        partitions: int = 2,
        config: Mapping[str, str] | None = None,
        *,
        has_orders: bool = False,
        has_facts: bool = False,
    ) -> None:
        name = uuid4().hex[:12]
        self.kafka = kafka
        self.bootstrap = kafka.bootstrap
        orders = (f"orders-{name}", f"outcomes-{name}") if has_orders else ()
        facts = f"facts-{name}" if has_facts else ""
        self.topics = replace(KafkaTopics(f"in-{name}", f"out-{name}", f"dead-{name}", *orders), facts=facts)
        self.group = f"group-{name}"
        self.workers: list[KafkaWorker] = []
        self._slots = count()
        self._threads = ThreadPoolExecutor(8)
        wait_until(lambda: self._makes_topics(partitions, config or {}), "the topics")
        self.partitions = [Partition(self.topics.input, number) for number in range(partitions)]

    def settings(self, slot: object = None, consumer: Mapping[str, Any] = {}, producer: Mapping[str, Any] = {}) -> KafkaSettings:
        consumer = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 200, **_PATIENT, **consumer}
        slot = next(self._slots) if slot is None else slot
        settings = settings_of(
            self.bootstrap, self.topics.without_facts().all, self.group, slot, consumer, {**_PATIENT_PRODUCER, **producer}
        )
        return replace(settings, topics=self.topics)

    def worker(self, slot: object = None, consumer: Mapping[str, Any] = {}, producer: Mapping[str, Any] = {}) -> KafkaWorker:
        self.workers.append(KafkaWorker(self.settings(slot, consumer, producer)))
        return self.workers[-1]

    def close(self) -> None:
        list(self._threads.map(lambda each: each.transport.close(), self.workers))
        self._threads.shutdown()

    def settle(self, *workers: KafkaWorker) -> None:
        """Poll these workers until each partition is owned by exactly one of them."""

        def is_settled() -> bool:
            owned = sorted(partition for each in workers for partition in each.read_to)
            return owned == self.partitions

        self.poll_until(is_settled, "every partition owned by one", *workers)

    def poll_until(self, question: Callable[[], object], what: str, *workers: KafkaWorker) -> None:
        """Poll these workers in parallel, until the question is true; brokers that do not answer are asked again."""

        def ask() -> bool:
            try:
                list(self._threads.map(KafkaWorker.poll, workers))
            except TransportUnavailable:
                return False
            return bool(question())

        wait_until(ask, what)

    def rebalance(self, *workers: KafkaWorker) -> None:
        """Let another member join and leave: a new generation begins, and each worker keeps its partitions."""
        with self.bystander() as joined:
            self.poll_until(joined, "another generation", *workers)

    @contextmanager
    def bystander(self) -> Iterator[Callable[[], bool]]:
        """Add a member of the group that reads another topic; the result is whether it has joined."""
        options = {"group_id": self.group, "partition_assignment_strategy": (CooperativeStickyAssignor,)}
        with closing(KafkaConsumer(self.topics.dead_letters, bootstrap_servers=self.bootstrap, **options)) as bystander:
            joining = self._threads.submit(wait_until, lambda: bystander.poll(500) or bystander.assignment(), "the bystander")
            yield joining.done
            joining.result()

    def wait_beyond_poll_interval(self, milliseconds: int) -> None:
        """Wait until a member of a group of its own that polls no more is thrown out, so long after its last poll."""
        group = f"idle-{uuid4().hex[:12]}"
        options = {"group_id": group, "max_poll_interval_ms": milliseconds}
        with (
            closing(KafkaConsumer(self.topics.input, bootstrap_servers=self.bootstrap, **options)) as idle,
            closing(self.kafka.admin()) as admin,
        ):
            members = lambda: admin.describe_groups([group])[group]["members"]  # noqa: E731 - Asked again.
            wait_until(lambda: idle.poll(500) or members(), "it has joined")
            wait_until(lambda: not members(), "it is thrown out", look_seconds=0.1)

    def send(
        self, *values: bytes | None, partition: int = 0, key: bytes | None = b"k", headers: Headers = (), **options: Any
    ) -> None:
        with closing(KafkaProducer(bootstrap_servers=self.bootstrap, **options)) as producer:
            for value in values:
                future = producer.send(self.topics.input, value, key, list(headers), partition)
            producer.flush()
            future.get(timeout=DEADLINE_SECONDS)

    def send_in_transaction(self, *values: bytes, abort: bool = False) -> None:
        """Send to the first partition, in a transaction."""
        with self.open_transaction(*values, abort=abort):
            pass

    @contextmanager
    def open_transaction(self, *values: bytes, abort: bool = False) -> Iterator[None]:
        with closing(KafkaProducer(bootstrap_servers=self.bootstrap, transactional_id=uuid4().hex)) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for value in values:
                producer.send(self.topics.input, value, partition=0)
            producer.flush()
            yield
            (producer.abort_transaction if abort else producer.commit_transaction)()

    def outputs(self, channel: Channel = Channel.NOTIFICATIONS) -> list[Any]:
        """Return what a `read_committed` reader gets up to the present end, after all transactions are decided.

        A broker answers a commit before it writes the markers.
        """
        return self._decided(self.topics.output(channel))

    def inputs(self) -> list[Any]:
        """Return what a `read_committed` reader of the input gets."""
        return self._decided(self.topics.input)

    def _decided(self, topic: str) -> list[Any]:
        with closing(self.reader()) as reader, closing(self.reader(isolation_level="read_uncommitted")) as uncommitted:
            wait_until(lambda: _ends(reader, topic) == _ends(uncommitted, topic), "the outcome of the last transaction")
            return read_to_end(reader, topic)

    def reader(self, group: str | None = None, isolation_level: str = "read_committed") -> KafkaConsumer:
        options = {"isolation_level": isolation_level, "auto_offset_reset": "earliest", "enable_auto_commit": False}
        return KafkaConsumer(bootstrap_servers=self.bootstrap, group_id=group, **options)

    def committed(self, partition: Partition) -> OffsetAndMetadata | None:
        with closing(self.reader(self.group)) as reader:
            return reader.committed(TopicPartition(*partition), metadata=True, timeout_ms=1_000 * DEADLINE_SECONDS)

    def set_position(self, partition: Partition, offset: int, metadata: str = "") -> None:
        """Set the position as another program or an operator does, without being a member of the group."""
        with self.undecided_position(partition, offset, metadata):
            pass

    @contextmanager
    def undecided_position(
        self, partition: Partition, offset: int, metadata: str = "", transactional_id: str = "", *, is_killed: bool = False
    ) -> Iterator[None]:
        """Leave the position undecided within the context. Its transaction commits at the end, unless `is_killed`."""
        options = {"transactional_id": transactional_id or uuid4().hex, "retry_backoff_ms": 5, "transaction_timeout_ms": 900_000}
        with closing(KafkaProducer(bootstrap_servers=self.bootstrap, **options)) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send_offsets_to_transaction({TopicPartition(*partition): OffsetAndMetadata(offset, metadata)}, self.group)
            yield
            if not is_killed:
                producer.commit_transaction()

    def _makes_topics(self, partitions: int, config: Mapping[str, str]) -> bool:
        try:
            self.kafka.create_topics(*self.topics.all, partitions=partitions, config=config)
        except InvalidReplicationFactorError:  # A broker that got no processor time for seconds counts as dead.
            return False
        return True


def settings_of(
    bootstrap: str, topics: Sequence[str], group: str, slot: object, consumer: Mapping[str, Any], producer: Mapping[str, Any]
) -> KafkaSettings:
    """Make settings from options with Kafka's names."""
    options, *problems = read_options({"bootstrap.servers": bootstrap, "group.id": group, **consumer}, producer)
    assert not any(problems), problems
    return KafkaSettings.make(KafkaTopics(*topics), options, f"{group}-{slot}", MAX_BYTES)


def read_to_end(reader: KafkaConsumer, topic: str) -> list[Any]:
    ends, found = _ends(reader, topic), []
    reader.assign(list(ends))
    reader.seek_to_beginning()
    while any(reader.position(name) < end for name, end in ends.items()):
        for records in reader.poll(timeout_ms=200).values():
            found.extend(records)
    return found


def _ends(reader: KafkaConsumer, topic: str) -> dict[TopicPartition, int]:
    # A topic that was made a moment ago may have no partition yet in the answer of a broker.
    numbers: set[int] = wait_until(lambda: reader.partitions_for_topic(topic), f"the partitions of {topic}")
    names = [TopicPartition(topic, number) for number in sorted(numbers)]
    ends: dict[TopicPartition, int] = reader.end_offsets(names)
    return ends


def notification(number: int, value: bytes = b"{}", key: bytes | None = b"unit", headers: Headers = ()) -> OutputRecord:
    return OutputRecord(number, Channel.NOTIFICATIONS, key, headers, value)


def values_of(records: Iterable[Any]) -> Sequence[bytes]:
    return [each.value for each in records]
