"""The transport over Kafka: reads as a group member, and publishes in transactions."""

from collections.abc import Mapping, Sequence

from guardian.ports import OutputRecord, PartitionOutput
from notification_service.connectors.kafka.consumer import GroupMember
from notification_service.connectors.kafka.core.fencing import Committed
from notification_service.connectors.kafka.fitting import Fitting
from notification_service.connectors.kafka.producer import NotTaken
from notification_service.connectors.kafka.reading import Reading
from notification_service.connectors.kafka.settings import KafkaSettings
from resequencer.clock import Clock
from resequencer.record import Partition


class KafkaTransport(Reading):
    """Implements the port. Nothing is connected before the first call.

    `clock` gives the instant of dead letters that are made here.
    """

    def __init__(self, settings: KafkaSettings, clock: Clock) -> None:
        assert settings.partitions is None, "with fixed partitions a transaction does not fence by the group"
        super().__init__(settings, clock)
        self._fitting = Fitting(settings, self._topics, clock)

    def publish(self, outputs: Sequence[PartitionOutput]) -> None:
        positions = self._to_commit({each.partition: each.position for each in outputs})
        if positions:
            rest = [each for each in outputs if each.partition in positions]
            self._commit([each for output in rest for each in output.records if self._fitting.has_topic(each)], positions)

    def _connected(self) -> GroupMember:
        if self._member is None:
            self._input.connect()
            self._fitting.look()
        return super()._connected()

    def _commit(self, output: Sequence[OutputRecord], positions: Mapping[Partition, Committed]) -> None:
        """Commit output and positions. A record that its topic refuses is replaced by a dead letter of the same number."""
        records = self._fitting.fit(output)
        while True:
            try:
                self._publisher.commit(records, positions)
            except NotTaken as error:
                records[error.at] = self._fitting.instead(output[error.at], records[error.at], error)
            else:
                return
