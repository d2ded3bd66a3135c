"""The reading half of the transport over Kafka: its positions are committed in transactions that hold nothing else."""

from collections.abc import Collection, Mapping

from connectors.kafka.settings import KafkaSettings
from connectors.kafka.transport import KafkaTransport
from connectors.port import PartitionOutput, Position, PublishRefused
from connectors.region.port import SourceCapabilities
from domain.clock import Clock
from domain.record import Partition


class KafkaSource(KafkaTransport):
    """Implements the port of sources."""

    capabilities = SourceCapabilities(can_replay=True, remembers=True)

    def __init__(self, settings: KafkaSettings, clock: Clock) -> None:
        super().__init__(settings, clock)

    def check_owned(self, partitions: Collection[Partition]) -> None:
        if lost := self._fencing.not_owned(list(partitions)):
            raise PublishRefused(f"not assigned to this worker at the moment: {', '.join(map(str, lost))}")

    def acknowledge(self, positions: Mapping[Partition, Position]) -> None:
        self.publish([PartitionOutput(partition, (), position) for partition, position in positions.items()])
