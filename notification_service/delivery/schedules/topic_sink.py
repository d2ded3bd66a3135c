"""Requests of a schedule on a topic of Kafka: records and progress are one transaction."""

from collections.abc import Sequence

from notification_service.connectors.kafka.core.fencing import Committed
from notification_service.connectors.kafka.core.records import ProducerRecord
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.delivery.schedules.core import Progress, Request, decode_progress
from notification_service.delivery.schedules.sink import ProgressUnreadable, ScheduleBusy
from notification_service.delivery.single_publisher import PublisherFenced, SinglePublisher


class TopicSink:
    """The progress is the metadata of an offset of `group`; the offset counts the requests of all ticks."""

    def __init__(self, settings: KafkaSettings, schedule: str, topic: str, group: str) -> None:
        self._schedule, self._topic, self._group = schedule, topic, group
        self._publisher = SinglePublisher(settings, topic, group)

    def find(self) -> Progress | None:
        return self._decoded(self._publisher.find())

    def begin(self) -> Progress | None:
        return self._decoded(self._publisher.begin())

    def store(self, requests: Sequence[Request], progress: Progress) -> None:
        records = [ProducerRecord(self._topic, each.key.encode(), each.headers, each.value) for each in requests]
        try:
            self._publisher.commit(records, Committed(progress.total, progress.encode()))
        except PublisherFenced as error:
            raise ScheduleBusy(self._schedule) from error

    def end(self) -> None:
        self._publisher.discard()

    def count_waiting(self) -> None:
        """The receiver's lag tells it."""

    def _decoded(self, committed: Committed | None) -> Progress | None:
        try:
            return None if committed is None else decode_progress(committed.metadata)
        except ValueError as error:
            raise ProgressUnreadable(self._schedule, f"group {self._group}", str(error)) from error
