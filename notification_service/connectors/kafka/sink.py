"""Sends records to topics for any source, each once: a marker holds how far each partition of the source is published."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from time import monotonic

from kafka import errors

from guardian.ports import (
    Channel,
    NotPublished,
    OutputRecord,
    PartitionOutput,
    Position,
    PublishRefused,
    TransportRefused,
    TransportUnavailable,
)
from notification_service.connectors.kafka.client import text_of, to_transport_error
from notification_service.connectors.kafka.consumer import GroupMember
from notification_service.connectors.kafka.core.fencing import Committed, Fences
from notification_service.connectors.kafka.core.records import Marker, ProducerRecord, highest_of, marker_after
from notification_service.connectors.kafka.core.size_limits import SizeLimits, refused_for_size
from notification_service.connectors.kafka.producer import FENCED, NotTaken
from notification_service.connectors.kafka.reading import Reading
from notification_service.connectors.kafka.region import Markers, OwnedPartition
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.connectors.kafka.topics import Topics
from notification_service.connectors.region_port import SinkCapabilities, SourceCapabilities
from resequencer.clock import Clock
from resequencer.errors import ResequencerError
from resequencer.record import Partition


class Fitting:
    """A record that its topic refuses is replaced by a dead letter of the same number. `clock` gives the instant of that."""

    def __init__(self, settings: KafkaSettings, topics: Topics, clock: Clock) -> None:
        self._settings = settings
        self._topics = topics
        self._clock = clock
        self._size_limits = SizeLimits(settings.topics, {})

    def look(self) -> None:
        """Read the topics' current limits."""
        topics, maximum = self._settings.topics, self._settings.max_request_bytes
        limits = self._topics.limits(*(name for channel in Channel if (name := topics.output(channel))))
        self._size_limits = SizeLimits(topics, {topic: min(limit, maximum) for topic, limit in limits.items()})

    def has_topic(self, output: OutputRecord) -> bool:
        """Whether the record has a topic. A fact that was pending when aggregation was switched off has none, and is dropped."""
        return output.channel is not Channel.FACTS or bool(self._settings.topics.facts)

    def fit(self, output: Sequence[OutputRecord]) -> list[ProducerRecord]:
        """Return the record to send for each of the output.

        Raises:
            TransportRefused: A fact or a value is too large for its topic.
        """
        now = self._clock.now()
        try:
            return [self._size_limits.fit(each, now) for each in output]
        except TransportRefused:
            self.look()  # The limit may have been raised meanwhile, as the last refusal asked for.
            return [self._size_limits.fit(each, now) for each in output]

    def replace(self, output: Sequence[OutputRecord], records: list[ProducerRecord], error: NotTaken) -> None:
        """Replace what the brokers have refused among the records for this output: by a dead letter.

        A topic may refuse timestamps (message.timestamp.before.max.ms and after.max.ms). Then these records get that of sending,
        and all of them if the brokers do not say which.

        Raises:
            TransportRefused: There is nothing smaller.
            TransportUnavailable, TransportRefused: The timestamps are refused, though they are those of sending.
        """
        if not error.is_for_its_time:
            records[error.at] = self._instead(output[error.at], records[error.at], error)
            return
        if all(each.timestamp is None for each in records):
            raise to_transport_error("the output", error.error) from error
        is_known = error.at < len(records) and records[error.at].timestamp is not None
        taken = error.taken_times if is_known else range(0)
        for at, each in enumerate(records):
            if each.timestamp is not None and (at == error.at or each.timestamp not in taken):
                records[at] = each._replace(timestamp=None)

    def _instead(self, output: OutputRecord, record: ProducerRecord, error: NotTaken) -> ProducerRecord:
        self.look()
        if output.channel is Channel.NOTIFICATIONS:
            replacement = self._size_limits.dead_letter(output, str(error), self._clock.now())
        else:
            replacement = self._size_limits.fit(output, self._clock.now())
        size = len(record.value or b"")
        if output.channel in (Channel.FACTS, Channel.VALUES) and record == replacement:
            what = "fact" if output.channel is Channel.FACTS else "value"
            raise refused_for_size(record.topic, f"it does not accept a {what} of {size} bytes ({error})")
        if record.topic == replacement.topic and size <= len(replacement.value or b""):
            problem = f"it does not accept a dead letter of {size} bytes ({error})"
            raise TransportRefused(f"topic {record.topic}", f"{problem}. Raise its max.message.bytes, and keep it uncompacted")
        return replacement


class _Part:
    """What is published for one partition: `records[i]` is sent for `output[i]`, and the marker is sent last."""

    def __init__(self, owned: OwnedPartition, output: list[OutputRecord], records: list[ProducerRecord], marker: Marker) -> None:
        self.owned = owned
        self.output = output
        self.records = records
        self.marker = marker


class KafkaSink:
    """Implements the port of sinks. Nothing is connected before the first call.

    The input of `settings.topics` is the markers' topic, which is made if it is missing. The transactional id of `settings` is
    the beginning of those of the source's partitions. `clock` gives the instant of dead letters that are made here.

    The records of each partition are published in a transaction of its own, with the marker. All transactions of a publication
    are written before the first one is committed. So a publication with a partition that another worker owns publishes nothing.
    """

    capabilities = SinkCapabilities(is_transactional=True, remembers=True)

    def __init__(self, settings: KafkaSettings, clock: Clock) -> None:
        self._settings = settings
        self._topics = Topics(settings)
        self._fitting = Fitting(settings, self._topics, clock)
        self._markers = Markers(settings)
        self._owned: dict[Partition, OwnedPartition] = {}
        self._fences: dict[Partition, Fences] = {}
        self._is_connected = False

    @property
    def notes(self) -> tuple[str, ...]:
        """As the port describes. Two workers that own one partition take it from each other, and nothing is published twice."""
        now = monotonic()
        problem = "another worker publishes for it again and again: two workers or two services read it. Give each its own"
        return tuple(f"{each}: {problem}" for each, fences in sorted(self._fences.items()) if fences.has_twin(now))

    def position(self, partition: Partition) -> Position | None:
        self._connect()
        self._drop(partition)
        owned = self._owned[partition] = OwnedPartition(partition, self._settings, self._markers)
        return None if owned.marker is None else owned.marker.position

    def publish(self, outputs: Sequence[PartitionOutput]) -> None:
        """As the port describes. A record that its topic refuses for its size is published as a dead letter under its number."""
        self._connect()
        if unread := [each.partition for each in outputs if each.partition not in self._owned]:
            raise PublishRefused(f"their markers were not read, or another worker owns them: {', '.join(map(str, unread))}")
        self._regain(outputs)
        parts = [self._part(each) for each in outputs]
        while not self._write(parts):
            self._regain(outputs)
        self._commit(parts)
        for part in parts:
            part.owned.is_ahead = False
            part.owned.instead.clear()

    def close(self) -> None:
        """Close all clients. One that fails to close ends with the process."""
        owned, self._owned = self._owned, {}
        for close in (*[each.close for each in owned.values()], self._markers.close, self._topics.close):
            with suppress(ResequencerError):
                close()
        self._is_connected = False

    def _connect(self) -> None:
        if not self._is_connected:
            self._markers.make_topic(self._topics)
            self._fitting.look()
            self._is_connected = True

    def _regain(self, outputs: Sequence[PartitionOutput]) -> None:
        for each in outputs:
            self._owned[each.partition].reopen()  # All of them first: markers are read up to the first open transaction.
        for each in outputs:
            try:
                self._owned[each.partition].regain()
            except PublishRefused:
                self._lose(each.partition)
                raise

    def _drop(self, partition: Partition) -> None:
        if partition in self._owned:
            self._owned.pop(partition).discard()

    def _lose(self, partition: Partition) -> None:
        self._drop(partition)
        self._fences.setdefault(partition, Fences()).note(monotonic())

    def _part(self, output: PartitionOutput) -> _Part:
        owned = self._owned[output.partition]
        highest = highest_of(owned.marker)
        fresh = [each for each in output.records if each.number > highest and self._fitting.has_topic(each)]
        records = [owned.instead.get(each.number, record) for each, record in zip(fresh, self._fitting.fit(fresh), strict=True)]
        return _Part(owned, fresh, records, marker_after(owned.marker, output))

    def _write(self, parts: Sequence[_Part]) -> bool:
        """Write the transactions, and wait until all records have arrived; no transaction is committed.

        Returns False if one record was replaced by another, and everything must be written again.
        """
        part = None
        try:
            for part in parts:
                part.owned.producer.begin([*part.records, self._record_of(part)])
            for part in parts:
                part.owned.producer.wait()
        except NotTaken as error:
            assert part is not None
            _discard(parts)
            self._replace(part, error)
            return False
        except errors.KafkaError as error:
            assert part is not None
            _discard(parts)
            raise self._failed(part, parts, error) from error
        except BaseException:
            _discard(parts)
            raise
        return True

    def _commit(self, parts: Sequence[_Part]) -> None:
        for at, part in enumerate(parts):
            try:
                part.owned.end(part.marker)
            except PublishRefused:
                _discard(parts[at:])
                self._lose(part.owned.partition)
                raise
            except errors.KafkaError as error:
                _discard(parts[at:])
                raise to_transport_error("the output", error) from error
            except BaseException:
                _discard(parts[at:])
                raise

    def _failed(self, part: _Part, parts: Sequence[_Part], error: errors.KafkaError) -> ResequencerError:
        """Return the error of a publication of which nothing was committed."""
        if isinstance(error, FENCED):
            self._lose(part.owned.partition)
            return PublishRefused(f"another worker publishes for {part.owned.partition}: {text_of(error)}")
        problem = to_transport_error("the output", error)
        is_partly_there = any(each.owned.is_ahead for each in parts)
        return NotPublished(str(problem)) if isinstance(problem, TransportUnavailable) and not is_partly_there else problem

    def _replace(self, part: _Part, error: NotTaken) -> None:
        if error.at == len(part.records) and not error.is_for_its_time:
            size, topic = len(self._record_of(part).value or b""), self._settings.topics.input
            problem = f"it does not accept a marker of {size} bytes ({error}). Raise its max.message.bytes"
            raise TransportRefused(f"topic {topic}", problem)
        before = list(part.records)
        self._fitting.replace(part.output, part.records, error)
        for output, record, earlier in zip(part.output, part.records, before, strict=True):
            if record != earlier:
                part.owned.instead[output.number] = record

    def _record_of(self, part: _Part) -> ProducerRecord:
        return part.marker.to_record(self._settings.topics.input, part.owned.key)


def _discard(parts: Sequence[_Part]) -> None:
    for part in parts:
        part.owned.discard()


class KafkaTransport(Reading):
    """Implements the port. Nothing is connected before the first call.

    `clock` gives the instant of dead letters that are made here.
    """

    def __init__(self, settings: KafkaSettings, clock: Clock) -> None:
        assert settings.partitions is None, "with fixed partitions a transaction does not fence by the group"
        super().__init__(settings, clock)
        self._fitting = Fitting(settings, self._topics, clock)

    def publish(self, outputs: Sequence[PartitionOutput]) -> None:
        positions = self._to_commit({each.partition: each.position for each in outputs})
        if positions:
            remaining = [each for each in outputs if each.partition in positions]
            self._commit([each for output in remaining for each in output.records if self._fitting.has_topic(each)], positions)

    def _connected(self) -> GroupMember:
        if self._member is None:
            self._input.connect()
            self._fitting.look()
        return super()._connected()

    def _commit(self, output: Sequence[OutputRecord], positions: Mapping[Partition, Committed]) -> None:
        """Commit output and positions. A record that its topic refuses is replaced by a dead letter of the same number."""
        records = self._fitting.fit(output)
        while True:
            try:
                self._publisher.commit(records, positions)
            except NotTaken as error:
                self._fitting.replace(output, records, error)
            else:
                return


class KafkaSource(Reading):
    """Implements the port of sources. Nothing is connected before the first call. `settings.topics` need only have the input.

    It acknowledges in a transaction without records. So a late request of an earlier acknowledgement moves no position back, and
    an unknown outcome can be looked up. The brokers refuse a member of an earlier generation.

    Fixed partitions are assigned to this worker, whoever else reads them. The later of two owners is the one that acknowledges.
    """

    capabilities = SourceCapabilities(can_replay=True, remembers=True)

    def check_owned(self, partitions: Collection[Partition]) -> None:
        self._connected()
        self._refuse_not_owned(partitions)

    def acknowledge(self, positions: Mapping[Partition, Position]) -> None:
        try:
            if remaining := self._to_commit(positions):
                self._publisher.commit([], remaining)
        except NotPublished as error:
            # Their output is published through the sinks, so the same positions must be acknowledged.
            raise TransportUnavailable(str(error)) from error
