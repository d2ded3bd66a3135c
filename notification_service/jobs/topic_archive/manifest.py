"""The manifest of an archive's directory, its file `_SUCCESS`, and where the stream continues after it."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from notification_service.jobs.errors import ArchiveRefused
from resequencer.clock import Instant
from resequencer.record import Partition

if TYPE_CHECKING:
    from notification_service.connectors.kafka.topic_ends import TopicEnds

FORMAT = 1
RECORDS, NAME = "batches", "_SUCCESS"
"""The directory of all batches, and the name of the manifest in each."""

Ends = Mapping[str, Mapping[int, int]]
"""Offsets by topic and partition; an end is exclusive."""


class ArchivedTopic(msgspec.Struct, frozen=True):
    """The number of a topic's records, and the bytes of their files."""

    records: int
    bytes: int


class GroupEnds(msgspec.Struct, frozen=True):
    """With aggregation: the offsets up to which the facts of each partition were counted, and those of the group reports.

    All reports because of facts before `counted` are archived, and all facts that reports before `reports` stand on.
    """

    counted: dict[int, int]
    reports: dict[int, int]


class DirectoryManifest(msgspec.Struct, frozen=True):
    """`starts` and `ends` are the offsets from which and up to which the topics were archived when this batch was written.

    `positions`, if known, are positions of the service's group. All output caused by records before them is in this batch or an
    earlier one. `groups` has as much for group reports; it is there only with `positions`.
    """

    first: int
    last: int
    archived_at: Instant
    topics: dict[str, ArchivedTopic]
    starts: dict[str, dict[int, int]]
    ends: dict[str, dict[int, int]]
    positions: dict[int, int] | None = None
    format: int = FORMAT
    groups: GroupEnds | None = None

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.topics.values())

    @property
    def records(self) -> int:
        return sum(each.records for each in self.topics.values())


def encode(manifest: DirectoryManifest) -> str:
    return msgspec.json.format(msgspec.json.encode(manifest)).decode() + "\n"


def decode(text: str, where: str) -> DirectoryManifest:
    """Decode a manifest. `where` names the file in an error.

    Raises:
        ArchiveRefused: The file is damaged, or a newer version wrote it.
    """
    try:
        given = msgspec.json.decode(text, type=_Format).format
        if given > FORMAT:
            raise ArchiveRefused(f"{where}: it has format {given}; read it with the newer version that wrote it")
        return msgspec.json.decode(text, type=DirectoryManifest)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise ArchiveRefused(f"{where}: it is damaged ({error}); restore the directory from a copy") from error


def covers(ends: Ends, others: Ends) -> bool:
    """Return whether every end of `others` is reached."""
    return all(ends.get(topic, {}).get(number, 0) >= end for topic, each in others.items() for number, end in each.items())


def joined(ends: Iterable[Ends]) -> dict[str, dict[int, int]]:
    """Combine the ends; for each partition the last of them counts."""
    found: dict[str, dict[int, int]] = {}
    for each in ends:
        for topic, numbers in each.items():
            found[topic] = {**found.get(topic, {}), **numbers}
    return found


def from_their_beginning(ends: Ends) -> dict[str, dict[int, int]]:
    """Return start offsets of 0 for these partitions: a partition added while the stream runs is read from 0 on."""
    return {topic: dict.fromkeys(numbers, 0) for topic, numbers in ends.items()}


class _Format(msgspec.Struct):
    format: int


def beginning(ends: Ends, topic_ends: "TopicEnds", place: str) -> dict[str, dict[int, int]]:
    """Return the offset at which each partition continues; a new partition is read from its beginning.

    Raises:
        ArchiveRefused: The next records are gone, or the topic was recreated since the last batch.
    """
    offsets: dict[str, dict[int, int]] = {}
    for partition, start in sorted(topic_ends.starts.items()):
        archived = ends.get(partition.topic, {}).get(partition.number)
        offset = start if archived is None else _checked(archived, partition, topic_ends, place)
        offsets.setdefault(partition.topic, {})[partition.number] = offset
    _refuse_lost_partitions(ends, topic_ends.starts, place)
    return offsets


def _checked(archived: int, partition: Partition, topic_ends: "TopicEnds", place: str) -> int:
    start, end = topic_ends.starts[partition], topic_ends.written[partition]
    other = "set another payment-status-notification.archive.directory to start a new archive with the records that are there"
    if archived < start:
        raise ArchiveRefused(
            f"{partition}: {place} ends at offset {archived}, but the brokers' first offset is {start}: their retention deleted "
            f"the records in between before they were archived. Archive more often than their retention.ms, and {other}"
        )
    if archived > end:
        raise ArchiveRefused(
            f"{partition}: {place} ends at offset {archived}, but the brokers' log ends at {end}: the topic was recreated or "
            f"has lost records; {other}"
        )
    return archived


def _refuse_lost_partitions(ends: Ends, starts: Mapping[Partition, int], place: str) -> None:
    topics = {each.topic for each in starts}
    archived = {Partition(topic, number) for topic in topics for number in ends.get(topic, ())}
    if lost := archived - starts.keys():
        raise ArchiveRefused(
            f"{min(lost)}: {place} has records of it, but the brokers do not have it: the topic was recreated with fewer "
            "partitions; set another payment-status-notification.archive.directory to start a new archive with what is there"
        )
