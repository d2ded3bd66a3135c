"""A store on topics. Values, output and the offsets of the commands are one transaction.

A local copy of a partition's values is brought up to what the topic holds. A `/` in the group's part of a value's key is written
as `%2F`, and a `%` as `%25`. The ids of the payments of messages have neither.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from kafka import TopicPartition
from msgspec.structs import replace

from guardian.headers import DUE
from guardian.ports import Channel, OutputRecord, PartitionOutput, Polled, Position, TransportRefused, TransportUnavailable
from notification_service.aggregation.commands import member_headers
from notification_service.aggregation.core import Slot, Stored, Values, numbered
from notification_service.aggregation.files import ValuesFile
from notification_service.aggregation.port import Step
from notification_service.connectors.kafka.core.client_options import KafkaTopics
from notification_service.connectors.kafka.core.records import ProducerRecord
from notification_service.connectors.kafka.log_reader import LogReader
from notification_service.connectors.kafka.producer import IdempotentProducer
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.connectors.kafka.sink import KafkaTransport
from notification_service.connectors.kafka.topic_reader import CommittedReader
from notification_service.connectors.kafka.topics import Right, Topic, Topics
from resequencer.clock import Clock, Instant, SteadyClock
from resequencer.errors import ResequencerError
from resequencer.record import Partition

_LOG = logging.getLogger("resequencer.aggregation")

_NOTE_SECONDS = 10.0
"""How often it is noted how far a local copy is. What was written since is read again after a crash."""

_DECIDED_SECONDS, _READ_SECONDS = 0.5, 5.0
"""How long a takeover waits for an open transaction, and how long it reads, before the other partitions have their turn."""


class KafkaStore:
    """Commands are `settings.topics.input`, values go to `topics.values`, completions to `topics.notifications`.

    Commands and values have the same partitions. `directory` holds the copies of the values of partitions that this worker has
    had: a file for each partition. No other process may use it. A copy holds nothing that was not committed. `clock` is one that
    a jump does not move at once.
    """

    def __init__(self, settings: KafkaSettings, directory: Path, clock: SteadyClock) -> None:
        self._transport = KafkaTransport(settings, clock)
        self._values_topic = settings.topics.values
        self._log = LogReader(settings)
        self._restoring = Restoring(settings, clock)
        self._clock = clock
        self._directory = directory
        self._owned: dict[Partition, ValuesFile] = {}
        self._noted_at: dict[Partition, float] = {}
        self._waiting: set[Partition] = set()
        self._commits = 0
        self._token = uuid4().hex[:12]

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for an operator about problems that do not stop the store."""
        return (*self._transport.standing().notes, *self._restoring.notes)

    def assignment(self) -> Collection[Partition]:
        return self._transport.assignment()

    def take_over(self, partition: Partition) -> int:
        """As the port describes. The position is read first: after that no earlier owner can commit any more.

        A takeover that takes long raises TransportUnavailable, and the next one continues it.
        """
        self._waiting.add(partition)
        position = self._transport.position(partition)
        offset = self._transport.start_offset(partition) if position is None else position.offset
        file = ValuesFile(self._directory / f"partition-{partition.number}.db", is_copy=True)
        try:
            read = self._restoring.restore(partition.number, file, _DECIDED_SECONDS, _READ_SECONDS)
            if position is None:
                self._refuse_values(partition, file)
            self._transport.seek(partition, offset)
        except BaseException:
            _put_away(file)
            raise
        self._owned[partition], self._noted_at[partition] = file, monotonic()
        self._waiting.discard(partition)
        _LOG.info("took over %s, its values were read from offset %d to %d", partition, read.start, read.stop)
        return offset

    @property
    def shares_values(self) -> bool:
        return False

    def values(self, partition: Partition) -> Values:
        return self._owned[partition]

    def let_go(self, partition: Partition) -> None:
        self._waiting.add(partition)
        if (file := self._owned.pop(partition, None)) is not None:
            _put_away(file)

    def poll(self, max_records: int, timeout_ms: int) -> Polled:
        return self._transport.poll(max_records, timeout_ms, self._waiting)

    def commit(self, steps: Mapping[Partition, Step]) -> None:
        self._commits += 1
        # No two transactions have the same position: so it is known which of them was committed.
        metadata = f'["{self._token}",{self._commits}]'
        began, ends = seconds_of(self._clock), self._find_ends(steps)
        self._transport.publish([_output(partition, step, metadata) for partition, step in steps.items()])
        for partition, step in steps.items():
            self._keep(partition, step)
        for partition, end in ends.items():
            note_read(self._owned[partition], end, began if self._clock.was_trusted else None)
            self._noted_at[partition] = monotonic()

    def close(self) -> None:
        for each in list(self._owned):
            self.let_go(each)
        self._transport.close()
        self._restoring.close()
        with suppress(ResequencerError):
            self._log.close()

    def _refuse_values(self, partition: Partition, file: ValuesFile) -> None:
        """Refuse values whose position is lost: the commands that they are made of would be applied again."""
        if file.is_empty():
            return
        problem = f"the group has no position, but there are values in topic {self._values_topic} that were made of its commands"
        remedy = "To continue, set the group's position (kafka-consumer-groups --reset-offsets)"
        raise TransportRefused(str(partition), f"{problem}. {remedy}; to begin again, delete that topic and create it again")

    def _keep(self, partition: Partition, step: Step) -> None:
        if step.turn.changes:
            with self._owned[partition].writing() as writing:
                writing.put(step.turn.changes)

    def _find_ends(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Return now and then how far the copies are, for a transaction that follows.

        Once it is committed, all below is in the copy: no other worker has owned the partition in between. Without that proof
        a worker that stood still would take what another has written for its own.
        """
        now = monotonic()
        due = [each for each in partitions if now - self._noted_at[each] >= _NOTE_SECONDS]
        names = {Partition(self._values_topic, each.number): each for each in due}
        return {names[name]: end for name, end in self._log.ends(names).items()}


def _output(partition: Partition, step: Step, metadata: str) -> PartitionOutput:
    values = [value_record(number, *each, partition.number) for number, each in enumerate(step.turn.changes.items(), 1)]
    records: list[OutputRecord] = [*values, *numbered(step.turn.output, len(values) + 1)]
    return PartitionOutput(partition, tuple(records), Position(step.next_offset, metadata))


def _put_away(file: ValuesFile) -> None:
    """Close a copy; one that is damaged is deleted, so that it is read again."""
    file.close()
    if file.is_damaged:
        with suppress(TransportUnavailable):  # The disk fails; the damage is found again.
            file.clear()


class TopicCommands:
    """Sends to the topic of commands."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._topic = settings.topics.input
        self._timeout_seconds = settings.call_timeout_ms / 1_000
        self._producer = IdempotentProducer(f"topic {self._topic}", settings)

    def update(self, key: str, member: str | None, body: bytes) -> None:
        self._producer.append(ProducerRecord(self._topic, key.encode(), member_headers(member), body), self._timeout_seconds)

    def close(self) -> None:
        self._producer.close(self._timeout_seconds)


_SEPARATOR = "/"


def value_record(number: int, slot: Slot, stored: Stored | None, partition: int) -> OutputRecord:
    """Return the record of a value; None deletes it."""
    key = slot.key.replace("%", "%25").replace(_SEPARATOR, "%2F") if "%" in slot.key or _SEPARATOR in slot.key else slot.key
    key = f"{key}{_SEPARATOR}{slot.member}" if slot.member else key
    due = stored.due if stored is not None else None
    headers = () if due is None else ((DUE, str(due).encode()),)
    return OutputRecord(number, Channel.VALUES, key.encode(), headers, b"" if stored is None else stored.body, partition)


def read_value(fetched: Any) -> tuple[Slot, Stored | None] | None:
    """Return the value of a record as kafka-python gives it; None if another program wrote it."""
    try:
        key, separator, member = fetched.key.decode().partition(_SEPARATOR)
    except (AttributeError, UnicodeDecodeError):
        return None
    if not key or (separator and not member):
        return None
    key = key.replace("%2F", _SEPARATOR).replace("%25", "%") if "%" in key else key
    return Slot(key, member), Stored(fetched.value, _due_of(fetched.headers)) if fetched.value else None


def _due_of(headers: Sequence[tuple[str, bytes | None]]) -> Instant | None:
    text = next((value for name, value in headers if name == DUE), None)
    return int(text) if text is not None and text.isdigit() else None


_RETENTION_MS = 86_400_000
"""Kafka's default of `delete.retention.ms`: so long a topic keeps the record that a value was deleted."""

_SAFE_PART = 0.9
"""A copy is used for this part of that time; the remainder is for reading."""

_VALUES_AT_ONCE, _BYTES_AT_ONCE = 50_000, 32 << 20
"""What is written in one transaction. Less makes SQLite write the same pages more often."""

_TOPIC_ID, _NEXT_OFFSET, _READ_AT = "topic-id", "next-offset", "read-at"


class _Noted(NamedTuple):
    """A copy holds everything below `next_offset`. What has replaced or deleted it since, the topic keeps from `read_at` on.

    `read_at` is in seconds since 1970.
    """

    next_offset: int
    read_at: float


class Restoring:
    """Restores the values of partitions of one topic. Its clients are connected with the first one. Used from one thread.

    `notes` are sentences for an operator about settings of the topic by which values get lost. The age of a copy is judged by
    `clock`, and noted only while it is trusted: a copy that is taken for younger than it is brings back what was deleted.
    """

    def __init__(self, settings: KafkaSettings, clock: SteadyClock) -> None:
        values, commands = settings.topics.values, settings.topics.input
        self._topic = values
        self._settings = replace(settings, topics=KafkaTopics(values, values, values))
        self._topics = Topics(replace(settings, topics=KafkaTopics(commands, values, values)), Right.READ)
        self._clock = clock
        self._reader: CommittedReader | None = None
        self._retention_ms: float = _RETENTION_MS
        self.notes: tuple[str, ...] = ()

    def restore(self, number: int, file: ValuesFile, wait_seconds: float = 60, read_seconds: float = inf) -> range:
        """Read what the topic holds beyond the copy, up to the end of what was written by now. Return the offsets that were read.

        All transactions that were begun before are decided then: a marker may come later than the position that it belongs to.

        Raises:
            TransportUnavailable: The brokers do not answer, a transaction stays open for `wait_seconds`, or there is more to read
                than `read_seconds` allow; the next call continues where this one ended.
            TransportRefused: The topic has no such partition.
        """
        if file.is_damaged:
            file.clear()
        topic = self._look(number)
        reader, name, until = self._connected(), TopicPartition(self._topic, number), monotonic() + read_seconds
        reader.choose({number})
        try:
            began = seconds_of(self._clock)
            end, begin = reader.decided_ends(wait_seconds)[name], reader.begins()[name]
            noted = self._find_noted(file, topic.topic_id, begin, end)
            if noted is None:
                file.clear()
                noted = _Noted(begin, began)
            reader.seek(name, noted.next_offset)
            values = self._read(reader, file, topic.topic_id, noted, {name: end}, until)
            # The first age of a copy is what it is: no older one is known.
            read_at = began if self._clock.was_trusted else noted.read_at
            _note(file, values, topic.topic_id, _Noted(end, read_at))
        finally:
            reader.choose(())  # Nothing is read ahead of a partition that may not be read again.
        return range(noted.next_offset, end)

    def close(self) -> None:
        reader, self._reader = self._reader, None
        for each in (reader, self._topics):
            with suppress(ResequencerError):
                if each is not None:
                    each.close()

    def _connected(self) -> CommittedReader:
        if self._reader is None:
            self._look_at_settings()
            self._reader = CommittedReader(self._settings, [self._topic], ())
        return self._reader

    def _look(self, number: int) -> Topic:
        """Return the topic as it is now."""
        topic, commands = self._topics.find(self._topic), self._topics.input
        wanted = max(number + 1, 0 if commands is None else commands.partitions)
        if topic.partitions < wanted:
            problem = f"it has {topic.partitions} partitions, but the topic of its commands has {wanted}"
            raise TransportRefused(f"topic {topic.name}", f"{problem}. Give it {wanted} (kafka-topics --alter)")
        return topic

    def _look_at_settings(self) -> None:
        policy = self._topics.find_setting(self._topic, "cleanup.policy")
        kept = self._topics.find_setting(self._topic, "delete.retention.ms")
        self._retention_ms = float(_RETENTION_MS if kept is None else kept)
        notes = []
        if policy is not None and policy != "compact":
            loss = "values that did not change for as long as its retention get lost, and their groups begin again"
            notes.append(f"topic {self._topic} has cleanup.policy = {policy}: {loss}. Set it to compact")
        if self._retention_ms < _RETENTION_MS:
            cost = (
                "A local copy that is older is read again, and a worker that needs longer to read the topic keeps deleted values"
            )
            text = f"topic {self._topic} forgets after {self._retention_ms / 1000:g} s what was deleted"
            notes.append(f"{text}. {cost}. Set its delete.retention.ms to {_RETENTION_MS} or more")
        for each in notes:
            _LOG.warning("%s", each)
        self.notes = tuple(notes)

    def _find_noted(self, file: ValuesFile, topic_id: UUID, begin: int, end: int) -> _Noted | None:
        """Return from where the copy can be brought up to date; None if it cannot be, or there is none."""
        noted, offset, read_at = file.note(_TOPIC_ID), file.note(_NEXT_OFFSET), file.note(_READ_AT)
        if noted != str(topic_id) or offset is None or read_at is None:
            return None
        try:
            found = _Noted(int(offset), float(read_at))
        except ValueError:
            return None
        # A copy from the future has a wrong age: the clock was set.
        is_young = 0 <= seconds_of(self._clock) - found.read_at < _SAFE_PART * self._retention_ms / 1000
        return found if is_young and begin <= found.next_offset <= end else None

    def _read(
        self,
        reader: CommittedReader,
        file: ValuesFile,
        topic_id: UUID,
        noted: _Noted,
        ends: Mapping[TopicPartition, int],
        until: float,
    ) -> Mapping[Slot, Stored | None]:
        """Read up to the ends, and write it in portions; return the last one.

        A portion is noted with the age of what was read first: the deletions that may be missing are those of that.
        """
        values: dict[Slot, Stored | None] = {}
        size = 0
        for name, records in reader.read(ends):
            values.update(found for each in records if (found := read_value(each)) is not None)
            size += sum(_size_of(each) for each in records)
            if not records or (len(values) < _VALUES_AT_ONCE and size < _BYTES_AT_ONCE and monotonic() < until):
                continue
            next_offset = records[-1].offset + 1
            _note(file, values, topic_id, noted._replace(next_offset=next_offset))
            values, size = {}, 0
            if monotonic() > until and next_offset < ends[name]:
                raise TransportUnavailable(f"its values are being read: offset {next_offset} of {ends[name]}")
        return values


def seconds_of(clock: Clock) -> float:
    """Return the instant as copies note it: in seconds since 1970."""
    return clock.now() / 1_000


def note_read(file: ValuesFile, next_offset: int, read_at: float | None) -> None:
    """Note that the copy held everything below the offset at this instant, in seconds; None: its age stays what it was."""
    with file.writing() as writing:
        writing.note(_NEXT_OFFSET, str(next_offset))
        if read_at is not None:
            writing.note(_READ_AT, repr(read_at))


def _note(file: ValuesFile, values: Mapping[Slot, Stored | None], topic_id: UUID, noted: _Noted) -> None:
    with file.writing() as writing:
        writing.put(values)
        writing.note(_TOPIC_ID, str(topic_id))
        writing.note(_NEXT_OFFSET, str(noted.next_offset))
        writing.note(_READ_AT, repr(noted.read_at))


def _size_of(fetched: Any) -> int:
    return len(fetched.value or b"")
