"""How far the archive of the topics is from what the brokers delete."""

from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from console.sources import ArchiveDistance
from daemon.configuration.configuration import Configuration
from daemon.configuration.kafka_settings import copied_settings
from daemon.configuration.sections import TransportType
from daemon.console.archived_output import find_path
from domain.record import Partition
from pipeline.archive.manifest import Ends
from pipeline.archive.newest import find_newest

if TYPE_CHECKING:
    from connectors.kafka.settings import KafkaSettings


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
    from connectors.kafka.offsets import LogReader  # Imported here: its client takes a third of a second to import.

    with closing(LogReader(settings)) as log:
        partitions = [each for topic in settings.topics.all for each in log.partitions(topic)]
        starts, written = log.starts(partitions), log.ends(partitions)
    found: dict[Partition, ArchiveDistance] = {}
    for partition in sorted(starts.keys() & written.keys()):
        archived = ends.get(partition.topic, {}).get(partition.number, starts[partition])
        found[partition] = ArchiveDistance(archived - starts[partition], written[partition] - archived)
    return found
