"""The events of jobs on a topic of Kafka: by their numbers, each once."""

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Protocol

import msgspec
from kafka import errors
from kafka.structs import ConsumerGroupMetadata

from connectors.kafka.core.fencing import Committed
from connectors.kafka.core.records import ProducerRecord
from connectors.kafka.errors import to_transport_error
from connectors.kafka.offsets import LogReader
from connectors.kafka.producer import NotTaken, TransactionalProducer
from connectors.kafka.settings import KafkaSettings
from domain.record import Partition

_AT_ONCE = 500
_SIMPLE_MEMBER = (-1, "", None)
"""Generation, member and instance of a group without members, which only keeps offsets."""


class _Event(msgspec.Struct):
    number: int
    job: str


class Mark(Protocol):
    """The number of the last published event, where it is not forgotten. Less than the number is harmless for a week."""

    def find(self) -> int: ...

    def note(self, number: int) -> None: ...


class EventTopic:
    """Any number of processes may publish: one after the other does.

    The number of the last event is an offset of `group`, committed in the transaction of the events. All processes use one
    transactional id, so whoever begins fences the others before it reads the number.
    """

    def __init__(self, settings: KafkaSettings, topic: str, group: str, mark: Mark) -> None:
        own = {"group_id": group}
        self._settings = msgspec.structs.replace(settings, consumer={**settings.consumer, **own})
        self._topic, self._group, self._mark = topic, group, mark
        self._producer: TransactionalProducer | None = None
        self._published = 0

    def publish(self, events_after: Callable[[int, int], Sequence[bytes]]) -> int:
        """Publish the events that are missing, and return how many. `events_after` gets a number and how many at most.

        Nothing is connected before there is an event.

        Raises:
            TransportUnavailable, TransportRefused: They are not published; the next call tries again.
        """
        if not events_after(self._published, 1):
            return 0
        try:
            return self._publish(events_after)
        except NotTaken as error:
            self._discard()
            raise to_transport_error(self._topic, error.error) from error
        except errors.KafkaError as error:
            self._discard()
            raise to_transport_error(self._topic, error) from error
        except BaseException:
            self._discard()
            raise

    def _publish(self, events_after: Callable[[int, int], Sequence[bytes]]) -> int:
        if self._producer is None:
            options = {**self._settings.producer, "transactional_id": self._group}
            self._producer = TransactionalProducer(options, self._settings.transaction_timeout_ms)
            self._published = self._find_published()
        bodies = events_after(self._published, _AT_ONCE)
        if not bodies:
            return 0
        events = [msgspec.json.decode(body, type=_Event) for body in bodies]
        records = [ProducerRecord(self._topic, each.job.encode(), (), body) for each, body in zip(events, bodies, strict=True)]
        number = events[-1].number
        group = ConsumerGroupMetadata(self._group, *_SIMPLE_MEMBER)
        self._producer.commit(records, {Partition(self._topic, 0): Committed(number, "")}, group)
        self._published = number
        self._mark.note(number)
        return len(bodies)

    def _find_published(self) -> int:
        with closing(LogReader(self._settings)) as reader:
            found = reader.position(Partition(self._topic, 0), None)
        # Brokers delete the offset of a group that was not used for a week; the ledger remembers it, perhaps a little less.
        return max(0 if found is None else found.offset, self._mark.find())

    def _discard(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.discard()
