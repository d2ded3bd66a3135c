"""The sources of jobs: how the ledger names them, and the feeds that read them."""

import fcntl
import os
import re
import secrets
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from guardian.ports import Channel
from notification_service.configuration.configuration import Configuration
from notification_service.configuration.sections import TransportType
from notification_service.configuration.transports import kafka_settings
from notification_service.connectors.files.operations import SystemFiles, sync_directory, write_all
from notification_service.delivery.errors import JobRefused
from notification_service.delivery.feed import Feed, make_item, select_items
from notification_service.delivery.file_feed import FileFeed
from notification_service.delivery.file_spans import FileSpan, FileSpanFeed, span_of
from notification_service.delivery.ledger.intake import Portion
from notification_service.delivery.ledger.jobs import Former
from notification_service.delivery.ledger.services import Service
from notification_service.delivery.settings import Receiver, Select
from notification_service.jobs.topic_archive.local_reading import ArchivedRecord, find_ends, find_path, records_in_order
from resequencer.clock import Instant
from resequencer.errors import ConfigurationError
from resequencer.printable import printable
from resequencer.record import Origin, Partition
from storage.private_file import make_lasting_directory

if TYPE_CHECKING:  # Kafka's client takes a third of a second to import.
    from notification_service.connectors.kafka.topics import Topic
    from notification_service.delivery.topic_feed import TopicFeed


class ArchiveSpan(msgspec.Struct, frozen=True):
    """What a job delivers of an archive: by partition up to an offset, with timestamps from `since` to `until` (exclusive).

    None is no limit. `location` is the path of the archive.
    """

    location: str
    topic: str
    ends: Mapping[int, int]
    since: Instant | None = None
    until: Instant | None = None

    def holds(self, timestamp: Instant) -> bool:
        return (self.since is None or timestamp >= self.since) and (self.until is None or timestamp < self.until)


class ArchiveFeed:
    """Reads a span of an archive. A part of the feed is a partition."""

    def __init__(self, span: ArchiveSpan, select: Select) -> None:
        self._span, self._select = span, select
        self._pieces: Iterator[list[ArchivedRecord]] | None = None
        self._at: Mapping[str, int] | None = None

    def read(self, positions: Mapping[str, int], limit: int) -> Portion:
        """As `Feed.read`.

        Raises:
            ArchiveRefused, ArchiveUnavailable: The archive cannot be read.
        """
        try:
            return self._read(positions, limit)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._pieces = self._at = None

    def _read(self, positions: Mapping[str, int], limit: int) -> Portion:
        if self._pieces is None or self._at != positions:
            starts = {int(part): at for part, at in positions.items()}
            span = self._span
            self._pieces = records_in_order(Path(span.location), span.topic, starts, span.ends, limit)
        piece = next(self._pieces, None)
        if piece is None:
            self.close()
            return Portion([], {}, is_end=True, seals=True)
        after = {str(piece[0].partition): piece[-1].offset + 1}
        self._at = {**positions, **after}
        within = [each for each in piece if self._span.holds(each.timestamp)]
        items = [make_item(each.key, each.value, each.headers, str(self._origin(each))) for each in within]
        selected = select_items(items, self._select)
        return Portion(selected, after, len(items) - len(selected))

    def _origin(self, record: ArchivedRecord) -> Origin:
        return Origin(Partition(self._span.topic, record.partition), record.offset)


LIVE = "live"
_ID_BYTES = 32
_SPANS, _TOPIC, _ARCHIVE = "file-spans:", "topic:", "archive:"


def source_of_files(configuration: Configuration, paths: list[Path]) -> str:
    """Return the source of a job that delivers what these files hold now.

    Raises:
        OSError: One of them cannot be read.
    """
    output = _output(configuration)
    spans = [span_of(each, is_written=output.exists() and each.samefile(output)) for each in paths]
    return _SPANS + msgspec.json.encode(spans).decode()


def delivers_files(source: str, paths: list[Path]) -> bool:
    """Return whether a job with this source delivers these files, as they were when it was started."""
    if not source.startswith(_SPANS):
        return False
    return [each.path for each in _spans(source)] == [str(each.absolute()) for each in paths]


def source_of_topic(
    configuration: Configuration,
    since: Instant | None = None,
    until: Instant | None = None,
    offsets: Mapping[int, int] | None = None,
) -> str:
    """Return the source of a job that delivers what the topic of notifications holds now, or what of it was written in a time.

    `offsets` is where to begin, by partition: then other partitions are not read, and `since` has no effect.

    Raises:
        JobRefused: The notifications are in files, or the topic does not hold one of the offsets.
        TransportUnavailable, TransportRefused: The topic cannot be read.
    """
    if configuration.notification.transport is TransportType.FILE:
        raise JobRefused("the notifications are in files: name the files instead of --topic")
    from notification_service.connectors.kafka.topic_reader import CommittedReader
    from notification_service.connectors.kafka.topics import Topics
    from notification_service.delivery.topic_feed import TopicSpan

    topic, settings = configuration.notification.topic, kafka_settings(configuration).without_facts()
    with closing(Topics(settings)) as topics:
        found = topics.find(topic)
    with closing(CommittedReader(settings, [topic])) as reader:
        ends = reader.decided_ends()
        begins = reader.begins()
        starts = begins if since is None else reader.since(since)
        if until is not None:
            ends = {name: min(end, reader.since(until)[name]) for name, end in ends.items()}
    first, last = ({name.partition: offset for name, offset in each.items()} for each in (starts, ends))
    if offsets:
        _refuse_absent(topic, offsets, {name.partition: offset for name, offset in begins.items()}, last)
        first, last = dict(offsets), {number: last[number] for number in offsets}
    span = TopicSpan(found.topic_id.hex, first, last)
    return _TOPIC + msgspec.json.encode(span).decode()


def _refuse_absent(topic: str, offsets: Mapping[int, int], begins: Mapping[int, int], ends: Mapping[int, int]) -> None:
    for number, offset in offsets.items():
        if number not in ends:
            raise JobRefused(f"{topic} has no partition {number}")
        if not begins[number] <= offset <= ends[number]:
            raise JobRefused(f"{topic}-{number} holds the offsets from {begins[number]} to {ends[number]}, and not {offset}")


def source_of_archive(configuration: Configuration, since: Instant | None, until: Instant | None) -> str:
    """Return the source of a job that delivers what the archive of the topics holds now, or what of it was written in a time.

    Raises:
        JobRefused: There is no archive at a path.
        ArchiveRefused, ArchiveUnavailable: It cannot be read.
    """
    path, topic = find_path(configuration.archive.location), configuration.notification.topic
    if path is None or not path.is_dir():
        shown = configuration.archive.location.partition("://")[0] if path is None else path
        raise JobRefused(
            f"there is no archive at {shown}: only archives on a path can be delivered; `make archive-topics` makes one"
        )
    span = ArchiveSpan(str(path.absolute()), topic, find_ends(path, topic), since, until)
    return _ARCHIVE + msgspec.json.encode(span).decode()


def open_feed(configuration: Configuration, source: str, receiver: Receiver) -> Feed:
    """Return the feed of a job's source.

    Raises:
        JobRefused: This version reads no such source.
    """
    operations = SystemFiles()
    if source.startswith(_SPANS):
        return FileSpanFeed(_spans(source), operations, receiver.select)
    if source.startswith(_ARCHIVE):
        return ArchiveFeed(msgspec.json.decode(source.removeprefix(_ARCHIVE), type=ArchiveSpan), receiver.select)
    if source.startswith(_TOPIC):
        return _topic_feed(configuration, receiver, source.removeprefix(_TOPIC))
    if source.partition(":")[0] != LIVE:
        kind = printable(source.partition(":")[0])
        raise JobRefused(f"this version reads no source {kind!r}: start the version that began the job, or cancel it")
    if configuration.notification.transport is not TransportType.FILE:
        return _topic_feed(configuration, receiver, None)
    return FileFeed(_output(configuration), operations, receiver.select)


def find_service(configuration: Configuration) -> Service:
    """Return the service as its ledger knows it: with files by the id of its run directory, with Kafka by its namespace.

    Raises:
        ConfigurationError: The file with the id holds something else.
        OSError: It cannot be read or written.
    """
    if configuration.notification.transport is not TransportType.FILE:
        return Service(configuration.storage.namespace)
    directory = configuration.notification.run_directory.absolute()
    identifier, inode = _durable_id(directory)
    # A ledger of its own is in the directory: a copy has another.
    is_shared = configuration.delivery.ledger.url is not None
    return Service(identifier, f"{socket.gethostname()}:{directory} ({inode:x})" if is_shared else None)


def _durable_id(directory: Path) -> tuple[str, int]:
    """Return the id of a run directory, which is made at the first call, and the inode of its file."""
    make_lasting_directory(directory)
    path, files = directory / "service-id", SystemFiles()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        found = os.pread(descriptor, 100, 0)
        if len(found) < _ID_BYTES:  # Of a crash in the midst.
            os.ftruncate(descriptor, 0)
            found = secrets.token_hex(_ID_BYTES // 2).encode() + b"\n"
            write_all(files, descriptor, found)
            os.fsync(descriptor)
            sync_directory(files, directory)
        if re.fullmatch(rb"[0-9a-f]{%d}\n?" % _ID_BYTES, found) is None:
            remedy = "put back what was in it, or delete it: then all output that is there is delivered again"
            raise ConfigurationError(str(path), f"has no id of {_ID_BYTES} hexadecimal digits: {remedy}")
        return found.decode().strip(), os.fstat(descriptor).st_ino
    finally:
        os.close(descriptor)


def live_source(configuration: Configuration, service: Service) -> tuple[str, Former | None]:
    """Return the source of what the service publishes, and how a version before named it.

    In a ledger that several machines may share it names the service by its id: others have others. Host and path may change.
    """
    if configuration.delivery.ledger.url is None:
        return LIVE, None
    if configuration.notification.transport is not TransportType.FILE:
        return f"{LIVE}:{service.id}", Former(LIVE, partial(_topic_parts, configuration), shares_parts=True)
    output = _output(configuration)
    feed = FileFeed(output, SystemFiles(), Select((), ()))
    return f"{LIVE}:{service.id}", Former(f"{LIVE}:{socket.gethostname()}:{output.absolute()}", feed.find_parts)


def _output(configuration: Configuration) -> Path:
    return configuration.notification.output_directory / f"{Channel.NOTIFICATIONS}.jsonl"


def _spans(source: str) -> list[FileSpan]:
    return msgspec.json.decode(source.removeprefix(_SPANS), type=list[FileSpan])


def _find_topic(configuration: Configuration) -> "Topic":
    from notification_service.connectors.kafka.topics import Topics

    with closing(Topics(kafka_settings(configuration).without_facts())) as topics:
        return topics.find(configuration.notification.topic)


def _topic_parts(configuration: Configuration) -> list[str]:
    from notification_service.delivery.topic_feed import part_of

    topic = _find_topic(configuration)
    return [part_of(topic, number) for number in range(topic.partitions)]


def _topic_feed(configuration: Configuration, receiver: Receiver, encoded: str | None) -> "TopicFeed":
    from notification_service.connectors.kafka.topic_reader import CommittedReader
    from notification_service.delivery.topic_feed import TopicFeed, TopicSpan

    topic, settings = configuration.notification.topic, kafka_settings(configuration).without_facts()
    span = None if encoded is None else msgspec.json.decode(encoded, type=TopicSpan)
    look = partial(_find_topic, configuration)
    numbers = None if span is None else list(span.ends)
    return TopicFeed(topic, lambda: CommittedReader(settings, [topic], numbers), look, receiver.select, span)
