"""The stage of the transport's tests, on the fakes: workers, and an outside client that writes and reads."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from types import MappingProxyType
from typing import Any, TypeVar
from uuid import uuid4

from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from simulation.fakes.broker import FakeBroker, Stored

from guardian.ports import Channel
from notification_service.connectors.kafka.settings import KafkaTopics
from resequencer.record import Headers, Partition
from tests.notification_service.connectors.kafka.stage import KafkaStage, KafkaWorker

Answer = TypeVar("Answer")
_NO_MEMBER = ConsumerGroupMetadata("group", -1, "", None)
_ROUNDS = 200
NOTHING: Mapping[str, Any] = MappingProxyType({})


class SafeLine:
    """A line on which everything arrives."""

    def ask(self, _: str, call: Callable[[], Answer], __: Exception, *, may_come_late: bool = False) -> Answer:
        return call()

    def leave_on_its_way(self, _: Callable[[], object]) -> None:
        """Drop the request: it never arrives."""

    def choose(self, count: int) -> int:
        return count - 1


class FakeStage(KafkaStage):
    """Time passes with the polls: the group removes a stalling worker when others are polled and it is not."""

    def __init__(self, partitions: int = 2) -> None:
        self.bootstrap = "nowhere:9092"
        self.topics = KafkaTopics("in", "out", "dead")
        self.group = "group"
        self.workers = []
        self._slots = count()
        self.partitions = [Partition(self.topics.input, number) for number in range(partitions)]
        self.broker = FakeBroker(dict.fromkeys(self.topics.all, partitions), self.topics.input)

    def worker(
        self, slot: object = None, consumer: Mapping[str, Any] = NOTHING, producer: Mapping[str, Any] = NOTHING
    ) -> KafkaWorker:
        worker = super().worker(slot, consumer, producer)
        worker.stalls = "max.poll.interval.ms" in consumer
        return worker

    def close(self) -> None:
        """Do nothing: no resource is open."""

    def poll_until(self, question: Callable[[], object], what: str, *workers: KafkaWorker) -> None:
        for _ in range(_ROUNDS):
            for each in self.workers:
                if each.stalls and each not in workers and each.transport._member is not None:
                    self.broker.group.remove(each.transport._member._consumer.group_metadata().member_id)
            for each in workers:
                each.poll()
            if question():
                return
        raise AssertionError(f"not within {_ROUNDS} polls: {what}")

    def rebalance(self, *workers: KafkaWorker) -> None:
        group = self.broker.group
        before, group.is_rebalancing = group.generation, True
        self.poll_until(lambda: group.generation > before and not group.is_rebalancing, "another generation", *workers)

    def send(self, *values: bytes | None, partition: int = 0, key: bytes | None = b"k", headers: Headers = (), **_: Any) -> None:
        for value in values:
            self.broker.append(TopicPartition(self.topics.input, partition), Stored(key, value, tuple(headers)))

    @contextmanager
    def open_transaction(self, *values: bytes, abort: bool = False) -> Iterator[None]:
        name = uuid4().hex
        epoch = self.broker.init(name)
        for value in values:
            self.broker.produce(name, epoch, TopicPartition(self.topics.input, 0), Stored(None, value, ()))
        yield
        self.broker.end(name, epoch, is_commit=not abort)

    def outputs(self, channel: Channel = Channel.NOTIFICATIONS) -> list[Any]:
        return [each._replace(headers=list(each.headers)) for each in self.broker.decided(self.topics.output(channel))]

    def committed(self, partition: Partition) -> OffsetAndMetadata | None:
        return self.broker.committed(TopicPartition(*partition))

    @contextmanager
    def undecided_position(
        self, partition: Partition, offset: int, metadata: str = "", transactional_id: str = "", *, is_killed: bool = False
    ) -> Iterator[None]:
        name = transactional_id or uuid4().hex
        epoch = self.broker.init(name)
        self.broker.add_offsets(name, epoch, {TopicPartition(*partition): OffsetAndMetadata(offset, metadata, -1)}, _NO_MEMBER)
        yield
        if not is_killed:
            self.broker.end(name, epoch, is_commit=True)
