"""A partition of the source whose output leaves through topics: the owner's producer, and what is known of the marker."""

from kafka import errors

from guardian.ports import PublishRefused
from notification_service.connectors.kafka.core.marker import Marker
from notification_service.connectors.kafka.core.records import ProducerRecord
from notification_service.connectors.kafka.errors import text_of
from notification_service.connectors.kafka.producer import TransactionalProducer
from notification_service.connectors.kafka.region.markers import Markers
from notification_service.connectors.kafka.settings import KafkaSettings
from resequencer.record import Partition

FENCED = (errors.ProducerFencedError, errors.InvalidProducerEpochError)


class OwnedPartition:
    """Making one fences all earlier owners, and reads the marker.

    Whenever a producer is made, the marker is read next: the producer has fenced whoever published meanwhile, and the marker
    alone tells of it. `marker` is None as long as nothing has left. `is_ahead`: a part of a publication has left, and the
    publication has not succeeded yet. `instead` has, by number, what is sent instead of records that the brokers refused.

    Raises of `__init__` and `regain`: as those of sinks.
    """

    def __init__(self, partition: Partition, settings: KafkaSettings, markers: Markers) -> None:
        self.partition = partition
        self.is_ahead = False
        self.instead: dict[int, ProducerRecord] = {}
        self._settings = settings.with_id(f"{settings.transactional_id}.{partition}")
        self._markers = markers
        self._tried: Marker | None = None
        self._fresh: TransactionalProducer | None = None
        self._producer: TransactionalProducer | None = None
        self.marker: Marker | None
        self._producer, self.marker = self._connect()

    @property
    def key(self) -> str:
        """The transactional id, which is also the key of the marker."""
        return self._settings.transactional_id

    @property
    def producer(self) -> TransactionalProducer:
        assert self._producer is not None, "regain it first"
        return self._producer

    def reopen(self) -> None:
        """Make another producer if the last one was discarded: this ends the transaction that it left open."""
        if self._producer is None and self._fresh is None:
            self._fresh = TransactionalProducer(self._settings.producer, self._settings.transaction_timeout_ms)

    def regain(self) -> None:
        """Make another producer if the last one was discarded, and find out what has left.

        Raises:
            PublishRefused: Another worker has published for the partition since.
        """
        if self._producer is not None:
            return
        producer, found = self._connect()
        if found != self.marker and (self._tried is None or found != self._tried):
            producer.discard()
            raise PublishRefused(f"another worker has published for {self.partition}")
        self.is_ahead |= found != self.marker
        self._producer, self.marker, self._tried = producer, found, None

    def end(self, marker: Marker) -> None:
        """Commit the producer's transaction, which has the marker.

        Raises:
            PublishRefused: Another worker has fenced this one. The outcome is unknown.
            KafkaError: The outcome is unknown; `regain` finds it out.
        """
        self._tried = marker
        try:
            self.producer.end()
        except FENCED as error:
            raise PublishRefused(f"another worker publishes for {self.partition}: {text_of(error)}") from error
        self.marker, self._tried, self.is_ahead = marker, None, True

    def discard(self) -> None:
        """Give the producer up, in whatever state it is. The next one for the partition ends an open transaction."""
        for each in (self._producer, self._fresh):
            if each is not None:
                each.discard()
        self._producer = self._fresh = None

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None
        self.discard()

    def _connect(self) -> tuple[TransactionalProducer, Marker | None]:
        self.reopen()
        assert self._fresh is not None
        producer, self._fresh = self._fresh, None
        try:
            return producer, self._markers.find(self.key)
        except BaseException:
            producer.discard()
            raise
