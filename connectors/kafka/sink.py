"""Sends records to topics, each once, for a source that is not Kafka, or beside other sinks.

A marker tells in the same transaction how far each partition of the source has left: docs/decisions/0046-regions.md.
"""

from collections.abc import Sequence
from contextlib import closing, suppress

import msgspec
from kafka import errors

from connectors.kafka.core.records import ProducerRecord
from connectors.kafka.core.size_limits import SizeLimits
from connectors.kafka.core.topic_names import KafkaTopics
from connectors.kafka.errors import to_transport_error
from connectors.kafka.made_topics import make_topics
from connectors.kafka.producer import NotTaken, TransactionalProducer
from connectors.kafka.settings import KafkaSettings
from connectors.kafka.topic_reader import CommittedReader
from connectors.kafka.topics import Right, Topics
from connectors.port import (
    Channel,
    OutputRecord,
    PartitionOutput,
    Position,
    PublishRefused,
    TransportRefused,
)
from connectors.region.port import SinkCapabilities
from domain.clock import Clock
from domain.errors import ResequencerError
from domain.record import Partition

_FENCED = (errors.ProducerFencedError, errors.InvalidProducerEpochError, errors.InvalidTxnStateError)


class _Marker(msgspec.Struct, frozen=True):
    offset: int
    metadata: str
    highest: int

    @property
    def position(self) -> Position:
        return Position(self.offset, self.metadata, highest=self.highest)


class KafkaSink:
    """Implements the port of sinks. Nothing is connected before the first call.

    There is a producer for each partition of the source, with `name` and the partition as its transactional id: making it fences
    the one of an earlier owner, on any machine. All services with one `name` must be one service. `clock` gives the instant of
    dead letters that are made here.
    """

    capabilities = SinkCapabilities(is_transactional=True, remembers=True)
    notes: Sequence[str] = ()

    def __init__(self, settings: KafkaSettings, markers: str, name: str, clock: Clock) -> None:
        topics = settings.topics
        self._settings = msgspec.structs.replace(settings, topics=msgspec.structs.replace(topics, input=topics.notifications))
        self._markers = markers
        self._name = name
        self._clock = clock
        self._limits: SizeLimits | None = None
        self._producers: dict[Partition, TransactionalProducer] = {}
        self._known: dict[Partition, _Marker | None] = {}
        self._tried: dict[Partition, _Marker] = {}

    def position(self, partition: Partition) -> Position | None:
        """As the port describes. Before the marker is read, a new producer fences the earlier owner and ends its transaction."""
        self._known.pop(partition, None)
        self._tried.pop(partition, None)
        self._make_ready()
        self._renew(partition)
        found = self._read(partition)
        self._known[partition] = found
        return None if found is None else found.position

    def publish(self, outputs: Sequence[PartitionOutput]) -> None:
        """As the port describes. Each partition of the source leaves in a transaction of its own."""
        if unread := [each.partition for each in outputs if each.partition not in self._known]:
            raise PublishRefused(f"the marker was not read: {', '.join(map(str, unread))}")
        for each in outputs:
            self._publish(each)

    def close(self) -> None:
        producers, self._producers = self._producers, {}
        for each in producers.values():
            with suppress(ResequencerError):
                each.close()
        self._known.clear()

    def _make_ready(self) -> None:
        if self._limits is not None:
            return
        topics = self._settings.topics
        make_topics(self._settings, topics.notifications, {self._markers: {"cleanup.policy": "compact"}})
        names = [name for channel in Channel if (name := topics.output(channel))]
        with closing(Topics(self._settings, Right.WRITE)) as looked:
            most = self._settings.max_request_bytes
            self._limits = SizeLimits(topics, {name: min(limit, most) for name, limit in looked.limits(*names).items()})

    def _renew(self, partition: Partition) -> None:
        before = self._producers.pop(partition, None)
        if before is not None:
            before.discard()
        options = {**self._settings.producer, "transactional_id": f"{self._name}.{partition}"}
        self._producers[partition] = TransactionalProducer(options, self._settings.transaction_timeout_ms)

    def _read(self, partition: Partition) -> _Marker | None:
        """Return the last marker that was committed."""
        topics = KafkaTopics(self._markers, self._markers, self._markers)
        key, last = str(partition).encode(), None
        with closing(CommittedReader(msgspec.structs.replace(self._settings, topics=topics), [self._markers])) as reader:
            for _, records in reader.read(reader.decided_ends()):
                last = next((each.value for each in reversed(records) if each.key == key), last)
        try:
            return None if last is None else msgspec.json.decode(last, type=_Marker)
        except (msgspec.DecodeError, RecursionError) as error:
            problem = f"the marker of {partition} cannot be read: another program has written it. Name another topic"
            raise TransportRefused(f"topic {self._markers}", problem) from error

    def _publish(self, output: PartitionOutput) -> None:
        partition, known = output.partition, self._known[output.partition]
        if partition not in self._producers:
            self._resolve(partition)
            known = self._known[partition]
        highest = known.highest if known is not None else 0
        fresh = [each for each in output.records if each.number > highest and self._settings.topics.output(each.channel)]
        marker = _Marker(
            output.position.offset, output.position.metadata, max([highest, *(each.number for each in output.records)])
        )
        if marker == known:
            return
        self._send(partition, fresh, marker)
        self._known[partition] = marker

    def _send(self, partition: Partition, fresh: Sequence[OutputRecord], marker: _Marker) -> None:
        assert self._limits is not None
        now = self._clock.now()
        records = [self._limits.fit(each, now) for each in fresh]
        told = ProducerRecord(self._markers, str(partition).encode(), (), msgspec.json.encode(marker))
        while True:
            try:
                self._producers[partition].send([*records, told])
            except NotTaken as error:
                self._discard(partition)
                if error.at >= len(fresh) or fresh[error.at].channel is not Channel.NOTIFICATIONS:
                    topic = [*records, told][error.at].topic
                    raise TransportRefused(f"topic {topic}", f"it refuses a record: {error}") from error
                records[error.at] = self._limits.letter(fresh[error.at], str(error), now)
                self._renew(partition)
            except errors.KafkaError as error:
                self._discard(partition)
                if isinstance(error, _FENCED):
                    self._known.pop(partition)
                    raise PublishRefused(f"another worker has taken over {partition}: {error}") from error
                self._tried[partition] = marker
                raise to_transport_error("the output", error) from error
            else:
                return

    def _discard(self, partition: Partition) -> None:
        producer = self._producers.pop(partition, None)
        if producer is not None:
            producer.discard()

    def _resolve(self, partition: Partition) -> None:
        """After a transaction without an outcome: end it, and read whether it was committed.

        Raises:
            PublishRefused: The marker is neither what was known nor what was tried: another worker has published meanwhile.
        """
        self._renew(partition)
        found = self._read(partition)
        if found not in (self._known[partition], self._tried.pop(partition, None)):
            del self._known[partition]
            raise PublishRefused(f"another worker has taken over {partition}")
        self._known[partition] = found
