"""Where the stream goes on, by what is archived and what the brokers have."""

from collections.abc import Mapping

from connectors.kafka.topic_ends import TopicEnds
from domain.record import Partition
from pipeline.archive.errors import ArchiveRefused
from pipeline.archive.manifest import Ends


def beginning(ends: Ends, topic_ends: TopicEnds, place: str) -> dict[str, dict[int, int]]:
    """An offset for each partition; one that is new is read from its beginning.

    Raises:
        ArchiveRefused: What follows is no longer there, or the topic is another one than that which was archived.
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
    other = "name another payment-status-notification.archive.directory to begin a new archive with what is there"
    if archived < start:
        raise ArchiveRefused(
            f"{partition}: {place} goes up to offset {archived}, and the brokers' first is {start}: their retention took what "
            f"lies between before it was archived. Archive more often than their retention.ms, and {other}"
        )
    if archived > end:
        raise ArchiveRefused(
            f"{partition}: {place} goes up to offset {archived}, and the brokers' last is {end}: the topic was made anew or has "
            f"lost records; {other}"
        )
    return archived


def _refuse_lost_partitions(ends: Ends, starts: Mapping[Partition, int], place: str) -> None:
    topics = {each.topic for each in starts}
    archived = {Partition(topic, number) for topic in topics for number in ends.get(topic, ())}
    if lost := archived - starts.keys():
        raise ArchiveRefused(
            f"{min(lost)}: {place} has records of it, and the brokers do not know it: the topic was made anew with fewer "
            "partitions; name another payment-status-notification.archive.directory to begin a new archive with what is there"
        )
