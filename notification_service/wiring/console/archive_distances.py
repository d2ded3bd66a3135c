"""How far the archive of the topics is from what the brokers delete."""

from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from notification_service.configuration.configuration import Configuration
from notification_service.configuration.kafka_settings import copied_settings
from notification_service.configuration.sections import TransportType
from notification_service.console.sources import ArchiveDistance
from notification_service.jobs.topic_archive.manifest import Ends
from notification_service.jobs.topic_archive.newest import find_newest
from notification_service.wiring.console.archived_output import find_path
from resequencer.record import Partition

if TYPE_CHECKING:
    from notification_service.connectors.kafka.settings import KafkaSettings


def find_archive_distances(configuration: Configuration) -> Mapping[Partition, ArchiveDistance]:
    """Return the distances of all partitions of the topics; empty without Kafka, and without an archive at a path.

    Raises:
        ArchiveRefused, ArchiveUnavailable: The archive cannot be read.
        TransportUnavailable, TransportRefused: The brokers cannot be asked.
    """
    transports = configuration.ingress.transport, configuration.notification.transport
    path = find_path(configuration.archive.location)
    newest = find_newest(path) if path is not None and set(transports) == {TransportType.KAFKA} else None
    return {} if newest is None else _distances(newest.ends, copied_settings(configuration))


def _distances(ends: Ends, settings: "KafkaSettings") -> Mapping[Partition, ArchiveDistance]:
    """Return how far these archived ends are from the logs' first offsets and stable ends.

    A partition that was never archived is archived from its first offset on, so that is its end.
    """
    from notification_service.connectors.kafka.offsets import (
        LogReader,  # Imported here: its client takes a third of a second to import.
    )

    with closing(LogReader(settings)) as log:
        partitions = [each for topic in settings.topics.all for each in log.partitions(topic)]
        starts, written = log.starts(partitions), log.ends(partitions)
    found: dict[Partition, ArchiveDistance] = {}
    for partition in sorted(starts.keys() & written.keys()):
        archived = ends.get(partition.topic, {}).get(partition.number, starts[partition])
        found[partition] = ArchiveDistance(archived - starts[partition], written[partition] - archived)
    return found
