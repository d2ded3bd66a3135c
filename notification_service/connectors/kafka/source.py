"""Reads a topic as the source of a region: as a member of the group, or fixed partitions."""

from collections.abc import Collection, Mapping

from guardian.ports import NothingLeft, Position, TransportUnavailable
from notification_service.connectors.kafka.reading import Reading
from notification_service.connectors.region.port import SourceCapabilities
from resequencer.record import Partition


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
            if rest := self._to_commit(positions):
                self._publisher.commit([], rest)
        except NothingLeft as error:
            # Their output has left through the sinks, so the same positions must be acknowledged.
            raise TransportUnavailable(str(error)) from error
