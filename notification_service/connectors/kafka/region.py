"""A partition of the source whose output is published to topics: the owner's producer, and what is known of the marker."""

from collections.abc import Mapping, Sequence
from typing import Any

from kafka import TopicPartition

from guardian.ports import PublishRefused, TransportWithheld
from notification_service.connectors.kafka.client import text_of
from notification_service.connectors.kafka.core.fencing import Committed, Fencing
from notification_service.connectors.kafka.core.records import PARTITION, Marker, ProducerRecord, decode_marker
from notification_service.connectors.kafka.log_reader import LogReader
from notification_service.connectors.kafka.producer import FENCED, TransactionalProducer
from notification_service.connectors.kafka.publisher import Publisher
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.connectors.kafka.topic_reader import CommittedReader
from notification_service.connectors.kafka.topics import Topics, make_topics
from resequencer.record import Partition


class FixedPublishers:
    """A `Publisher` for each partition, made with its takeover. The calls are those of `Publisher`."""

    def __init__(self, settings: KafkaSettings, log: LogReader, fencing: Fencing) -> None:
        self._settings = settings
        self._log = log
        self._fencing = fencing
        self._publishers: dict[Partition, Publisher] = {}

    def connect(self) -> None:
        """Do nothing: each producer is made with the takeover of its partition."""

    def fence(self, partition: Partition) -> None:
        """Fence all earlier owners of the partition. Raises as `Publisher.connect`."""
        self._of(partition).fence()

    def resolve(self) -> None:
        for each in self._publishers.values():
            each.resolve()

    def is_committed(self, partition: Partition, position: Committed) -> bool:
        return self._of(partition).is_committed(partition, position)

    def take_failed(self, positions: Mapping[Partition, Committed]) -> bool:
        failed = [each for each, position in positions.items() if self._of(each).take_failed({each: position})]
        return bool(failed)

    def commit(self, records: Sequence[ProducerRecord], positions: Mapping[Partition, Committed]) -> None:
        """Commit the positions, each in a transaction of its own."""
        assert not records, "a record belongs to one partition of the source"
        for each, position in positions.items():
            self._of(each).commit((), {each: position})

    def asked_under(self) -> tuple[object, int]:
        return self._fencing.membership, sum(each.attempts for each in self._publishers.values())

    def close(self) -> None:
        for each in self._publishers.values():
            each.close()

    def _of(self, partition: Partition) -> Publisher:
        if partition not in self._publishers:
            settings = self._settings.with_id(f"{self._settings.group_id}.source.{partition}")
            self._publishers[partition] = Publisher(settings, self._log, self._fencing)
        return self._publishers[partition]


_CONFIGURATION = {
    "cleanup.policy": "compact",
    "retention.ms": "-1",
    # The brokers compact only what is not in the last segment, and each publication writes a marker.
    "segment.bytes": str(16 << 20),
}
_FIRST_LOOK = 1_000
"""How many records are read first: a partition at work has its marker there. Each further look is four times as long."""


def loses_markers(topic: str, policy: str | None) -> TransportWithheld | None:
    """Return the refusal of a topic with this cleanup.policy; None if it keeps all markers, or the policy is not known."""
    if policy in (None, "compact"):
        return None
    problem = f"its cleanup.policy is {policy}, so the brokers would delete markers, and records would be published twice"
    return TransportWithheld(f"topic {topic}", f"{problem}. Set it to compact")


class Markers:
    """Finds markers in the topic that is the input of `settings`. Any call but `close` may raise as those of sinks do."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._topic = settings.topics.input
        self._reader: CommittedReader | None = None

    def make_topic(self, topics: Topics) -> None:
        """Make the topic if it is missing.

        Raises:
            TransportRefused: It cannot be made, or its markers would get lost.
        """
        make_topics(self._settings, self._settings.topics.notifications, {self._topic: _CONFIGURATION})
        topics.look()
        if (problem := loses_markers(self._topic, topics.find_setting(self._topic, "cleanup.policy"))) is not None:
            raise problem

    def find(self, key: str) -> Marker | None:
        """Return the last marker with this key; None if there is none. Its owner's transactions are all decided.

        Raises:
            TransportUnavailable: The brokers do not answer, or a transaction of another partition is open for long.
        """
        try:
            found = self._search(key.encode())
        except BaseException:
            self.close()
            raise
        return None if found is None else decode_marker(self._topic, key, found.value)

    def close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _search(self, key: bytes) -> Any:
        """Read backwards, in ever longer pieces, until the key is found."""
        if self._reader is None:
            self._reader = CommittedReader(self._settings, [self._topic], {PARTITION})
        reader, name, length = self._reader, TopicPartition(self._topic, PARTITION), _FIRST_LOOK
        # Transactions of an earlier owner are ended already. The others are at work, or the takeovers that follow end them.
        upper = reader.decided_ends(self._settings.undecided_wait_ms / 1000)[name]
        begin = reader.begins()[name]
        while upper > begin:
            lower = max(begin, upper - length)
            reader.seek(name, lower)
            found = None
            for _, records in reader.read({name: upper}):
                found = next((each for each in reversed(records) if each.key == key), found)
            if found is not None:
                return found
            upper, length = lower, 4 * length
        return None


class OwnedPartition:
    """Making one fences all earlier owners, and reads the marker.

    Whenever a producer is made, the marker is read next: the producer has fenced whoever published meanwhile, and the marker
    alone shows it. `marker` is None as long as nothing is published. `is_ahead`: a part of a publication is published, and the
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
        """Make another producer if the last one was discarded: this ends its open transaction."""
        if self._producer is None and self._fresh is None:
            self._fresh = TransactionalProducer(self._settings.producer, self._settings.transaction_timeout_ms)

    def regain(self) -> None:
        """Make another producer if the last one was discarded, and find out what is published.

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
