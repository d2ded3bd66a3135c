"""A stage on a real broker for sources and sinks that are not one transport."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any
from uuid import uuid4

from harness.waiting import wait_until
from kafka import KafkaProducer
from msgspec.structs import replace

from guardian.ports import Channel, TransportUnavailable
from notification_service.connectors.kafka.core.client_options import KafkaTopics
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.connectors.kafka.sink import KafkaSink, KafkaSource
from tests.notification_service.connectors.kafka.stage import FixedClock, KafkaStage, values_of

IMPATIENT = ({"default.api.timeout.ms": 2_000}, {"transaction.timeout.ms": 3_000})


class RegionStage(KafkaStage):
    """`markers` is the topic of the markers, which is missing at first."""

    @property
    def markers(self) -> str:
        return self.topics.notifications.replace("out-", "markers-")

    def source_settings(self, slot: object = None, partitions: tuple[int, ...] | None = None, **consumer: Any) -> KafkaSettings:
        options = {name.replace("_", "."): value for name, value in consumer.items()}
        settings = self.settings(slot, options)
        topics = KafkaTopics(*[self.topics.input] * 3)
        return replace(settings, topics=topics, undecided_wait_ms=60_000, partitions=partitions)

    def sink_settings(self, *, is_patient: bool = True, **options: Any) -> KafkaSettings:
        """Return settings of a sink. One that is not patient waits 2 s for an answer and 3 s for a transaction."""
        settings = self.settings("sink", *(() if is_patient else IMPATIENT))
        settings = replace(settings, undecided_wait_ms=60_000 if is_patient else 500)
        return replace(settings, **{"topics": replace(self.topics, input=self.markers)} | options)

    def source(self, slot: object = None, partitions: tuple[int, ...] | None = None, **consumer: Any) -> KafkaSource:
        return KafkaSource(self.source_settings(slot, partitions, **consumer), FixedClock())

    def sink(self, *, is_patient: bool = True, **options: Any) -> KafkaSink:
        return KafkaSink(self.sink_settings(is_patient=is_patient, **options), FixedClock())

    def published(self, channel: Channel = Channel.NOTIFICATIONS) -> list[bytes]:
        return [*values_of(self.outputs(channel))]

    def write_markers(self, *values: bytes, key: bytes = b"another", abort: bool = False) -> None:
        with self.open_markers(*values, key=key, abort=abort):
            pass

    @contextmanager
    def open_markers(self, *values: bytes, key: bytes = b"another", abort: bool = False) -> Iterator[None]:
        """Write to the markers' topic in another one's transaction, which ends with the context."""
        with closing(KafkaProducer(bootstrap_servers=self.bootstrap, transactional_id=uuid4().hex)) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for value in values:
                producer.send(self.markers, value, key, partition=0)
            producer.flush()
            yield
            (producer.abort_transaction if abort else producer.commit_transaction)()


def until_done(call: Callable[[], object]) -> list[Exception]:
    """Repeat the call while the brokers are away, as the guardian does; return the errors."""
    errors: list[Exception] = []

    def attempt() -> bool:
        try:
            call()
        except TransportUnavailable as error:
            errors.append(error)
            return False
        return True

    wait_until(attempt, "the call")
    return errors
