"""Reads topics without a group: committed records, from any offset, up to the current ends."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from time import monotonic
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from guardian.ports import Channel, TransportUnavailable
from notification_service.connectors.kafka.client import make_client, translated
from notification_service.connectors.kafka.core.records import is_note
from notification_service.connectors.kafka.log_reader import find_offsets, find_since
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.connectors.kafka.topics import Topics
from notification_service.connectors.line_format import Line, encode_line
from resequencer.clock import Instant
from resequencer.record import Origin, Partition, Record

_POLL_MS = 200
_AT_ONCE = 5_000
_SILENT_SECONDS = 30
"""How long to wait for the next records: a partition that moves to another broker is not read for some seconds."""
_DECIDED_SECONDS = 60
"""How long to wait for an open transaction: the brokers end it within its time-out and some 10 s more."""


class CommittedReader:
    """A reader of some of the service's topics. Any call may raise TransportUnavailable or TransportRefused.

    With `numbers` it reads only the partitions with these numbers.
    """

    def __init__(self, settings: KafkaSettings, topics: Sequence[str], numbers: Collection[int] | None = None) -> None:
        self._settings = settings
        self._topics = topics
        with closing(Topics(settings if settings.topics.facts in topics else settings.without_facts())) as looked:
            looked.look()
        self._uncommitted: KafkaConsumer | None = None
        self._names: list[TopicPartition] = []
        self._reader = self._made("read_committed")
        self.choose(numbers)

    @property
    def _what(self) -> str:
        return ", ".join(self._topics)

    def ends(self) -> dict[TopicPartition, int]:
        """Return the current ends of the decided parts."""
        return self._ends(self._reader)

    def choose(self, numbers: Collection[int] | None = None) -> None:
        """Read only the partitions with these numbers from now on, from their beginnings; None: all."""
        with translated(self._what):
            found = [TopicPartition(topic, number) for topic in self._topics for number in self._partitions(topic)]
            self._names = [each for each in found if numbers is None or each.partition in numbers]
            self._reader.assign(self._names)
            if self._names:
                self._reader.seek_to_beginning()
        self._at: dict[int, int] | None = None

    def decided_ends(self, wait_seconds: float = _DECIDED_SECONDS) -> dict[TopicPartition, int]:
        """Return the ends once all records written before the call are decided.

        Raises:
            TransportUnavailable: A transaction stays open for longer than `wait_seconds`.
        """
        until = monotonic() + wait_seconds
        if self._uncommitted is None:
            self._uncommitted = self._made("read_uncommitted")
        written = self._ends(self._uncommitted)
        while True:
            ends = self.ends()
            if all(end >= written[name] for name, end in ends.items()):
                return ends
            if monotonic() > until:
                raise TransportUnavailable(f"{self._what}: a transaction is still open after {wait_seconds} s; try again")
            with translated(self._what):
                self._reader.poll(timeout_ms=_POLL_MS, max_records=1)  # Only to wait; `read` begins with a seek.

    def seek_beginnings(self) -> None:
        with translated(self._what):
            self._reader.seek_to_beginning()

    def seek_instant(self, since: Instant) -> None:
        """Seek in each partition to the first record with a timestamp of `since` or later."""
        for name, offset in self.since(since).items():
            self.seek(name, offset)

    def seek_only(self, offsets: Mapping[Partition, int]) -> None:
        """Seek to these offsets, or to the first that still exists; partitions not named are not read."""
        begins, ends = self.begins(), self.ends()
        for name in self._names:
            self.seek(name, min(max(offsets.get(Partition(*name), ends[name]), begins[name]), ends[name]))

    def read(self, ends: Mapping[TopicPartition, int]) -> Iterator[tuple[TopicPartition, list[Any]]]:
        """Yield the records from the current offsets up to `ends`, one piece of one partition at a time, in order.

        Afterwards the reader stands at the ends; records beyond them are read again by the next call.

        Raises:
            TransportUnavailable: Nothing comes although the ends are not reached.
        """
        limit_ms = self._settings.call_timeout_ms
        before, came_at = dict[TopicPartition, int](), monotonic()
        while True:
            with translated(self._what):
                offsets = {name: self._reader.position(name, timeout_ms=limit_ms) for name in ends}
                if all(offsets[name] >= end for name, end in ends.items()):
                    return
                if offsets != before:
                    before, came_at = offsets, monotonic()
                elif monotonic() - came_at > _SILENT_SECONDS:
                    raise TransportUnavailable(f"{self._what}: the brokers have sent nothing for {_SILENT_SECONDS} s; try again")
                polled = self._reader.poll(timeout_ms=_POLL_MS, max_records=_AT_ONCE)
            for name, records in polled.items():
                within = [each for each in records if each.offset < ends[name]]
                if len(within) < len(records):
                    self._reader.seek(name, records[len(within)].offset)
                yield name, within

    @property
    def numbers(self) -> list[int]:
        """The numbers of the partitions, of a reader of one topic."""
        return [each.partition for each in self._names]

    def begins(self) -> dict[TopicPartition, int]:
        """Return the first offset of each partition that still exists."""
        with translated(self._what):
            return find_offsets(self._reader, self._names, "beginning", self._settings.call_timeout_ms)

    def since(self, instant: Instant) -> dict[TopicPartition, int]:
        """Return the offset of the first record with a timestamp of `instant` or later, the end where there is none."""
        with translated(self._what):
            found = find_since(self._reader, self._names, instant, self._settings.call_timeout_ms)
        return {**self.ends(), **found}

    def follow(self, offsets: Mapping[int, int]) -> Mapping[int, int]:
        """Let `poll` read these partitions alone, of a reader of one topic, from these offsets on; return where each continues.

        That is the first record that still exists if retention deleted the one at the offset, and the end of a log that ends
        before it. Where the last `positions` are the offsets nothing is asked of the brokers.
        """
        if offsets == self._at:
            return offsets
        begins, ends = self.begins(), self.ends()
        names = {number: TopicPartition(self._topics[0], number) for number in offsets}
        continues = {number: min(max(offsets[number], begins[name]), ends[name]) for number, name in names.items()}
        with translated(self._what):
            self._reader.assign(list(names.values()))
            for number, name in names.items():
                self._reader.seek(name, continues[number])
        self._at = dict(offsets)
        return continues

    def positions(self) -> dict[int, int]:
        """Return the offset with which the next poll continues, for each partition that is followed."""
        followed = self._at or {}
        with translated(self._what):
            for number in followed:
                name = TopicPartition(self._topics[0], number)
                followed[number] = self._reader.position(name, timeout_ms=self._settings.call_timeout_ms)
        return dict(followed)

    def seek(self, name: TopicPartition, offset: int) -> None:
        self._reader.seek(name, offset)

    def poll(self, max_records: int) -> dict[TopicPartition, list[Any]]:
        """Return up to `max_records` records behind the current offsets; an empty dict after a moment without any."""
        with translated(self._what):
            polled: dict[TopicPartition, list[Any]] = self._reader.poll(timeout_ms=_POLL_MS, max_records=max_records)
        return polled

    def close(self) -> None:
        if self._uncommitted is not None:
            self._uncommitted.close()
        self._reader.close()

    def _made(self, isolation_level: str) -> KafkaConsumer:
        return make_consumer(self._what, self._settings, isolation_level=isolation_level)

    def _partitions(self, topic: str) -> list[int]:
        return sorted(self._reader.partitions_for_topic(topic))

    def _ends(self, reader: KafkaConsumer) -> dict[TopicPartition, int]:
        with translated(self._what):
            return find_offsets(reader, self._names, "end", self._settings.call_timeout_ms)


def find_record(settings: KafkaSettings, origin: Origin) -> Record | None:
    """Return the committed record at a position, None if the brokers have none there: it was deleted, or not written yet.

    Raises:
        TransportUnavailable, TransportRefused: The topic cannot be read.
    """
    return next(_records_at(settings, origin.partition.topic, [origin]), None)


def find_written(settings: KafkaSettings, topic: str, origins: Sequence[Origin], max_seconds: float) -> dict[Origin, Instant]:
    """Return the timestamps of the records at these positions of a topic, of those that it has, as far as the time is enough.

    Raises: as `find_record`.
    """
    until, found = monotonic() + max_seconds, dict[Origin, Instant]()
    for record in _records_at(settings, topic, origins):
        if record.written_at is not None:
            found[record.origin] = record.written_at
        if monotonic() > until:
            break
    return found


def _records_at(settings: KafkaSettings, topic: str, origins: Sequence[Origin]) -> Iterator[Record]:
    """Yield the committed records at these positions of one topic, of those that the brokers have."""
    with closing(CommittedReader(settings, [topic], {each.partition.number for each in origins})) as reader:
        begins, ends = reader.begins(), reader.ends()
        for origin in origins:
            name, offset = TopicPartition(*origin.partition), origin.offset
            if name in ends and begins[name] <= offset < ends[name]:
                reader.seek_only({origin.partition: offset})
                for _, records in reader.read({name: offset + 1}):
                    for each in records:
                        headers = tuple((header, value or b"") for header, value in each.headers or ())
                        yield Record(origin, each.value, each.key, headers, written_at=each.timestamp)


def make_consumer(what: str, settings: KafkaSettings, **options: Any) -> KafkaConsumer:
    """Make a connected consumer without a group. `options` are kafka-python's, beside those of the settings."""
    without_group = {"group_id": None, "group_instance_id": None}
    made: KafkaConsumer = make_client(what, KafkaConsumer, {**settings.consumer, **without_group, **options})
    return made


_COPIED = (Channel.NOTIFICATIONS, Channel.DEAD_LETTERS, Channel.ORDER_OUTCOMES)


class TopicExport:
    """Reads the topics from their beginnings, and appends to `<channel>.jsonl`.

    The records of a partition keep their order. Operators' notes among the dead letters are not copied. `more` are further
    topics, each with the name of its file.
    """

    def __init__(self, settings: KafkaSettings, directory: Path, more: Mapping[str, str] | None = None) -> None:
        names = {settings.topics.output(channel): f"{channel}.jsonl" for channel in _COPIED} | dict(more or {})
        self._files = {topic: (directory / name).open("ab") for topic, name in names.items() if topic}
        self._reader = CommittedReader(settings, list(self._files))

    def catch_up(self) -> None:
        """Copy the records up to the current ends.

        Raises:
            TransportUnavailable, TransportRefused: The topics cannot be read.
        """
        for name, records in self._reader.read(self._reader.ends()):
            self._files[name.topic].writelines(_lines(records))
        for file in self._files.values():
            file.flush()

    def close(self) -> None:
        self._reader.close()
        for file in self._files.values():
            file.close()


def _lines(records: Iterable[Any]) -> Iterable[bytes]:
    for each in records:
        headers = tuple((name, value or b"") for name, value in each.headers)
        if not is_note(headers):
            yield encode_line(Line(each.value, each.key, headers))
