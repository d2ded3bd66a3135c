"""The partitions of the input, for programs that hold none of them."""

from collections.abc import Mapping, Sequence
from threading import Lock

from notification_service.configuration.configuration import Configuration
from notification_service.configuration.kafka_settings import kafka_settings
from notification_service.configuration.sections import TransportType
from notification_service.connectors.files.source import partition_numbers
from notification_service.supervision.system_clock import SystemClock
from resequencer.clock import Instant
from resequencer.record import Partition

_FRESH_MS = 30_000
"""Partitions are added rarely, and asking for them takes a request to the brokers."""


class InputPartitions:
    """Remembers for a while what it found. May be used from several threads."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._clock = SystemClock()
        self._lock = Lock()
        self._found: tuple[Partition, ...] = ()
        self._found_at: Instant | None = None

    def find(self) -> Sequence[Partition]:
        """Return the partitions of the input, by number.

        Raises:
            TransportUnavailable: The brokers do not answer, and no earlier answer is known.
        """
        with self._lock:
            now = self._clock.now()
            if self._found_at is None or not 0 <= now - self._found_at < _FRESH_MS:
                self._found, self._found_at = self._look(), now
            return self._found

    def find_ends(self) -> Mapping[Partition, int]:
        """Return where the log of each partition ends now: an offset on Kafka, a length in bytes of a file.

        A queue has no such end: none is returned.

        Raises: as `find`.
        """
        ingress, partitions = self._configuration.ingress, self.find()
        if ingress.transport is TransportType.JMS:
            return {}
        if ingress.transport is TransportType.FILE:
            files = {each: ingress.file_directory / f"partition-{each.number}.jsonl" for each in partitions}
            return {each: file.stat().st_size for each, file in files.items() if file.exists()}
        from notification_service.connectors.kafka.offsets import (
            LogReader,  # Imported here: its client takes a third of a second to import.
        )

        log = LogReader(kafka_settings(self._configuration))
        try:
            return log.ends(partitions)
        finally:
            log.close()

    def _look(self) -> tuple[Partition, ...]:
        ingress = self._configuration.ingress
        if ingress.transport is TransportType.JMS:
            return tuple(Partition(each.queue, number) for number, each in enumerate(ingress.jms.partitions))
        if ingress.transport is TransportType.FILE:
            return tuple(Partition(ingress.topic, number) for number in partition_numbers(ingress.file_directory))
        from notification_service.connectors.kafka.offsets import (
            LogReader,  # Here, for its client takes a third of a second to import.
        )

        log = LogReader(kafka_settings(self._configuration))
        try:
            return tuple(log.partitions(ingress.topic))
        finally:
            log.close()
