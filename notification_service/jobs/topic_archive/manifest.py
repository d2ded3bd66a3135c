"""The manifest of an archive's directory: its file `_SUCCESS`."""

from collections.abc import Iterable, Mapping

import msgspec

from notification_service.jobs.topic_archive.errors import ArchiveRefused
from resequencer.clock import Instant

FORMAT = 1
NAME = "_SUCCESS"

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
