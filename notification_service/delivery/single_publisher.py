"""Publishes to a topic of Kafka together with a number and a text that say how far it is. One process at a time does so."""

from collections.abc import Sequence
from contextlib import closing

import msgspec
from kafka import errors
from kafka.structs import ConsumerGroupMetadata

from guardian.ports import TransportUnavailable
from notification_service.connectors.kafka.client import to_transport_error
from notification_service.connectors.kafka.core.fencing import Committed
from notification_service.connectors.kafka.core.records import ProducerRecord
from notification_service.connectors.kafka.log_reader import LogReader
from notification_service.connectors.kafka.producer import NotTaken, TransactionalProducer
from notification_service.connectors.kafka.settings import KafkaSettings
from resequencer.record import Partition

_SIMPLE_MEMBER = (-1, "", None)
"""Generation, member and instance of a group without members, which only keeps offsets."""

_FENCED = (errors.ProducerFencedError, errors.InvalidProducerEpochError)


class PublisherFenced(TransportUnavailable):
    """Another process has begun to publish. Nothing of the last call was published."""


class SinglePublisher:
    """The number and the text are an offset of `group` and its metadata, committed in the transaction of the records.

    All processes use the group's name as their transactional id: a process that begins fences the others before it reads.
    """

    def __init__(self, settings: KafkaSettings, topic: str, group: str) -> None:
        # Each question has a client of its own. It first finds the group's broker: half a second is too short on a busy machine.
        waits = {"undecided_wait_ms": settings.call_timeout_ms}
        self._settings = msgspec.structs.replace(settings, consumer={**settings.consumer, "group_id": group}, **waits)
        self._topic, self._group = topic, group
        self._producer: TransactionalProducer | None = None

    @property
    def has_begun(self) -> bool:
        return self._producer is not None

    def find(self) -> Committed | None:
        """Return what was committed last; None if nothing was. Other processes are not disturbed.

        Raises:
            TransportUnavailable, TransportRefused: It cannot be read, perhaps because a transaction is under way.
        """
        with closing(LogReader(self._settings)) as reader:
            return reader.position(Partition(self._topic, 0), None)

    def begin(self) -> Committed | None:
        """End what another process has under way, and return what was committed last. Raises as `find` does."""
        self.discard()
        options = {**self._settings.producer, "transactional_id": self._group}
        self._producer = TransactionalProducer(options, self._settings.transaction_timeout_ms)
        try:
            return self.find()
        except BaseException:
            self.discard()
            raise

    def commit(self, records: Sequence[ProducerRecord], progress: Committed) -> None:
        """Publish the records together with the progress behind them.

        Raises:
            PublisherFenced: Another process publishes by now.
            TransportUnavailable, TransportRefused: It is not known whether they are published. Begin anew.
        """
        assert self._producer is not None, "it has begun"
        group = ConsumerGroupMetadata(self._group, *_SIMPLE_MEMBER)
        try:
            self._producer.commit(records, {Partition(self._topic, 0): progress}, group)
        except _FENCED as error:
            self.discard()
            raise PublisherFenced(f"another process publishes to {self._topic} for {self._group}") from error
        except (NotTaken, errors.KafkaError) as error:
            self.discard()
            reason = error.error if isinstance(error, NotTaken) else error
            raise to_transport_error(self._topic, reason) from error
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Publish no more from here. What is not committed by now never is."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.discard()
