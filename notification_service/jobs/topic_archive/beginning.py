"""Computes where the stream continues, from the archived ends and the brokers' logs. Pure."""

from collections.abc import Mapping

from notification_service.connectors.kafka.topic_ends import TopicEnds
from notification_service.jobs.topic_archive.errors import ArchiveRefused
from notification_service.jobs.topic_archive.manifest import Ends
from resequencer.record import Partition


def beginning(ends: Ends, topic_ends: TopicEnds, place: str) -> dict[str, dict[int, int]]:
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


def _checked(archived: int, partition: Partition, topic_ends: TopicEnds, place: str) -> int:
    start, end = topic_ends.starts[partition], topic_ends.written[partition]
    other = "set another payment-status-notification.archive.directory to start a new archive with the records that are there"
    if archived < start:
        raise ArchiveRefused(
            f"{partition}: {place} ends at offset {archived}, but the brokers' first offset is {start}: their retention deleted "
            f"the records in between before they were archived. Archive more often than their retention.ms, and {other}"
        )
    if archived > end:
        raise ArchiveRefused(
            f"{partition}: {place} ends at offset {archived}, but the brokers' log ends at {end}: the topic was made anew or has "
            f"lost records; {other}"
        )
    return archived


def _refuse_lost_partitions(ends: Ends, starts: Mapping[Partition, int], place: str) -> None:
    topics = {each.topic for each in starts}
    archived = {Partition(topic, number) for topic in topics for number in ends.get(topic, ())}
    if lost := archived - starts.keys():
        raise ArchiveRefused(
            f"{min(lost)}: {place} has records of it, but the brokers do not have it: the topic was made anew with fewer "
            "partitions; set another payment-status-notification.archive.directory to start a new archive with what is there"
        )
