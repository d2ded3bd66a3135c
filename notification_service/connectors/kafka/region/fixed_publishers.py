"""Publishes positions of fixed partitions: no group fences, so one transactional id for each partition does."""

from collections.abc import Mapping, Sequence

from notification_service.connectors.kafka.core.fencing import Committed, Fencing
from notification_service.connectors.kafka.core.records import ProducerRecord
from notification_service.connectors.kafka.offsets import LogReader
from notification_service.connectors.kafka.publisher import Publisher
from notification_service.connectors.kafka.settings import KafkaSettings
from resequencer.record import Partition


class FixedPublishers:
    """A `Publisher` for each partition, made with its takeover. The calls are those of `Publisher`."""

    def __init__(self, settings: KafkaSettings, log: LogReader, fencing: Fencing) -> None:
        self._settings = settings
        self._log = log
        self._fencing = fencing
        self._publishers: dict[Partition, Publisher] = {}

    def connect(self) -> None:
        """Do nothing: each producer is made with the takeover of its partition."""

    def fence(self, partition: Partition) -> None:
        """Fence all earlier owners of the partition. Raises as `Publisher.connect`."""
        self._of(partition).fence()

    def resolve(self) -> None:
        for each in self._publishers.values():
            each.resolve()

    def has_left(self, partition: Partition, position: Committed) -> bool:
        return self._of(partition).has_left(partition, position)

    def take_failed(self, positions: Mapping[Partition, Committed]) -> bool:
        failed = [each for each, position in positions.items() if self._of(each).take_failed({each: position})]
        return bool(failed)

    def commit(self, records: Sequence[ProducerRecord], positions: Mapping[Partition, Committed]) -> None:
        """Commit the positions, each in a transaction of its own."""
        assert not records, "a record belongs to one partition of the source"
        for each, position in positions.items():
            self._of(each).commit((), {each: position})

    def asked_under(self) -> tuple[object, int]:
        return self._fencing.membership, sum(each.attempts for each in self._publishers.values())

    def close(self) -> None:
        for each in self._publishers.values():
            each.close()

    def _of(self, partition: Partition) -> Publisher:
        if partition not in self._publishers:
            settings = self._settings.with_id(f"{self._settings.group_id}.source.{partition}")
            self._publishers[partition] = Publisher(settings, self._log, self._fencing)
        return self._publishers[partition]
