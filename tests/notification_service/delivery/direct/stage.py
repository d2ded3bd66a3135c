"""Direct delivery on a real broker: topics and groups of its own, workers in threads, and the receiver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from threading import Thread
from typing import Any
from uuid import uuid4

import msgspec
from harness.receivers import receiver
from harness.steady import steady
from harness.waiting import DEADLINE_SECONDS, wait_ms, wait_until
from kafka import KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType

from guardian.positions import DoneOffsets
from notification_service.connectors.dead_letters.port import AskedFor, Signature
from notification_service.connectors.kafka.dead_letters import KafkaDeadLetterStore
from notification_service.connectors.kafka.orders import KafkaOrderSource
from notification_service.connectors.kafka.preflight import find_unread
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.connectors.kafka.sink import KafkaTransport
from notification_service.connectors.kafka.topics import make_topics
from notification_service.delivery.direct.core.decision import Stage, find_former_group, stages_of, topics_to_make
from notification_service.delivery.direct.core.partition import DirectOrder, DirectOrderKind, DirectOutcome
from notification_service.delivery.direct.core.position_metadata import find_metadata
from notification_service.delivery.direct.order_topic import OrderLog, OrderTopic
from notification_service.delivery.direct.owned import StageClients
from notification_service.delivery.direct.receiver import DirectReceiver, DirectReport, PartitionReport, Topics
from notification_service.delivery.direct.requeue import requeue_route
from notification_service.delivery.settings import Receiver
from notification_service.supervision.system_clock import SystemClock
from resequencer.record import Partition
from servers.kafka import KafkaServer
from tests.notification_service.connectors.kafka.stage import KafkaStage, settings_of

_FACTS = (
    "suspension { probe = 200ms, most = 1s }",
    "retry { first = 50ms, factor = 1, jitter = 0 }",
)


class Worker:
    """A worker of direct delivery in a thread."""

    def __init__(self, made: DirectReceiver, source: str) -> None:
        self._made, self._source = made, source
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._run)
        self.error: BaseException | None = None
        self._thread.start()

    def report(self) -> DirectReport:
        if self.error is not None:
            raise self.error

        async def ask() -> DirectReport:
            return self._made.report()

        return asyncio.run_coroutine_threadsafe(ask(), self._loop).result(DEADLINE_SECONDS)

    def partitions(self) -> list[PartitionReport]:
        """Return the reports of the source's partitions."""
        return [each for each in self.report().partitions if each.partition.topic == self._source]

    def stop(self) -> None:
        """Stop as the service does, and wait for the end."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._made.stop)
            self._thread.join(DEADLINE_SECONDS)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            with ThreadPoolExecutor(1) as threads:
                self._loop.run_until_complete(self._made.run(threads))
        except BaseException as error:
            self.error = error
        finally:
            self._loop.close()


class DirectStage:
    """A receiver `keys` of which are HOCON; `url` is where it is called."""

    def __init__(self, kafka: KafkaServer, url: str, *keys: str, partitions: int = 2) -> None:
        name = uuid4().hex[:8]
        self.kafka = kafka
        self.topics = KafkaStage(kafka, partitions)
        self.source = self.topics.topics.input
        self.group = f"g-{name}"
        self._url = url
        self.consumer: Mapping[str, Any] = {}
        self.configure(*keys)
        self.workers: list[Worker] = []

    def configure(self, *keys: str) -> None:
        """Give the receiver other keys; workers that are started later have them."""
        # The policy is checked against the transport by the configuration, which has a test of its own.
        self.use(receiver(*_FACTS, "policy = blocking", *keys, url=self._url, is_kafka=True))

    def use(self, settings: Receiver) -> None:
        """Give workers that are started later these settings."""
        self.receiver = settings
        self.stages = stages_of(settings, self.source, self.group)

    def settings(self, stage: Stage, slot: str, **consumer: Any) -> KafkaSettings:
        quick: dict[str, Any] = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 200} | self.consumer | consumer
        producer = {"max.request.size": 6 << 20}
        made = settings_of(self.kafka.bootstrap, (stage.topic, "", ""), stage.group, slot, quick, producer)
        return msgspec.structs.replace(made, topics=stage.topics, max_value_bytes=5 << 20)

    def worker(self, slot: str = "") -> Worker:
        slot = slot or uuid4().hex[:6]
        settings, stages = self.settings(self.stages[0], slot), self.stages

        def make() -> Mapping[str, str]:
            make_topics(settings, self.source, topics_to_make(stages))
            return find_unread(settings, partial(find_former_group, stages))

        def open_clients(stage: Stage) -> StageClients:
            settings = self.settings(stage, slot)
            orders = KafkaOrderSource(settings) if stage.orders else None
            return StageClients(KafkaTransport(settings, SystemClock()), orders, settings.session_timeout_ms)

        topics = Topics(make, open_clients, lambda: OrderLog(settings))
        made = DirectReceiver("r", self.receiver, self.stages, topics, steady(SystemClock()))
        self.workers.append(Worker(made, self.source))
        return self.workers[-1]

    def send(self, records: Sequence[tuple[str, str]], partition: int | None = 0, size: int = 2) -> None:
        """Send a record for each pair of key and notification id, with a value of so many bytes."""
        with closing(KafkaProducer(bootstrap_servers=self.kafka.bootstrap, max_request_size=6 << 20)) as producer:
            for key, id_ in records:
                headers = [("notification-id", id_.encode())]
                producer.send(self.source, b"{}".ljust(size), key.encode(), headers, partition)
            producer.flush()

    def send_raw(self, topic: str, values: Sequence[bytes]) -> None:
        """Send values to the first partition of a topic."""
        with closing(KafkaProducer(bootstrap_servers=self.kafka.bootstrap)) as producer:
            for value in values:
                producer.send(topic, value, partition=0)
            producer.flush()

    def position(self, partition: int = 0) -> OffsetAndMetadata | None:
        with closing(self.topics.reader(self.group)) as reader:
            return reader.committed(TopicPartition(self.source, partition), metadata=True, timeout_ms=1_000 * DEADLINE_SECONDS)

    def done_ahead(self, partition: int = 0) -> DoneOffsets:
        """Return what the group's position says to be done beyond it."""
        found = self.position(partition)
        kept = found and find_metadata(
            found.offset, found.metadata.partition("direct/")[1] + found.metadata.partition("direct/")[2]
        )
        return kept.done if kept else DoneOffsets(0)

    def read(self, topic: str) -> list[Any]:
        """Return the decided records of a topic."""
        return self.topics._decided(topic)

    def topics_configuration(self, topic: str) -> Mapping[str, str]:
        """Return the configuration of a topic, with the brokers' defaults."""
        with closing(self.kafka.admin()) as admin:
            found = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all")
        return {name: each["value"] for name, each in found["topic"][topic].items()}

    def members(self) -> list[str]:
        """Return the ids of the members of the source's group."""
        with closing(self.kafka.admin()) as admin:
            return sorted(each["member_id"] for each in admin.describe_groups([self.group])[self.group]["members"])

    def alter(self, topic: str, values: Mapping[str, str]) -> None:
        """Change the configuration of a topic."""
        with closing(self.kafka.admin()) as admin:
            admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, dict(values))])

    def dead_letters(self) -> list[dict[str, str]]:
        """Return the headers of each dead letter."""
        found = self.read(self.stages[0].dead_letters)
        return [{name: value.decode() for name, value in each.headers} for each in found]

    def wait(self, question: Callable[[], object], what: str, seconds: float = DEADLINE_SECONDS) -> None:
        """Wait while all workers are well."""

        def ask() -> bool:
            for each in self.workers:
                if each.error is not None:
                    raise each.error
            return bool(question())

        wait_until(ask, what, seconds)

    def letters(self, *numbers: str) -> KafkaDeadLetterStore:
        """Open the dead letters as `dead-letters --receiver` does; the caller closes the store."""
        source = self.stages[0]
        route = requeue_route(source.topic, source.group, SystemClock())
        sign = lambda: Signature("me", "2026-03-28T00:00:00Z")  # noqa: E731
        return KafkaDeadLetterStore(self.settings(source, "letters"), AskedFor(numbers=numbers), sign, route)

    def order(
        self, kind: DirectOrderKind, offset: int | None = None, partition: int = 0, seconds: float = DEADLINE_SECONDS
    ) -> DirectOutcome:
        """Give an order, and return its outcome."""
        topic = OrderTopic(self.settings(self.stages[0], "orders"))
        order = DirectOrder(id=uuid4().hex, order=kind, by="me", because="a test", at="2026-03-28T00:00:00Z", offset=offset)
        place = Partition(self.source, partition)
        found = topic.wait_for_outcome(place, order, topic.give(place, order), seconds, lambda pause: wait_ms(1_000 * pause))
        assert found is not None, "no outcome"
        return found

    def close(self) -> None:
        for each in self.workers:
            each.stop()
        self.topics.close()
