"""Sends simulated lines to the queue from which the bridge takes them."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType

from guardian.backoff import RetryWithBackoff
from guardian.ports import TransportRefused
from notification_service.connectors.jms.settings import JmsSourceSettings, QueuePartition
from notification_service.connectors.jms.xms_source import XmsSourceSettings
from notification_service.simulator.generate.jms_input import JmsInput


class XmsInput(JmsInput):
    """Sends to one queue. `partition_of` is the partitioner of the bridge's start, and offsets are the bridge's."""

    def __init__(self, settings: XmsSourceSettings, partition_of: Callable[[bytes], int], retry: RetryWithBackoff) -> None:
        self._counted = TemporaryDirectory(prefix="simulated-")
        queue = JmsSourceSettings(settings.broker, (QueuePartition(settings.queue),))
        super().__init__(queue, Path(self._counted.name) / "sent.json", retry)
        self._partition_of = partition_of

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._counted:
            super().__exit__(kind, error, trace)

    def partition_of(self, key: bytes) -> int:
        return self._partition_of(key)

    def append(self, partition: int, line: bytes) -> None:  # noqa: ARG002 - The queue has one partition.
        super().append_and_tell(0, line)

    def append_and_tell(self, partition: int, line: bytes) -> int:
        raise TransportRefused("the queue", f"the offset of a line of partition {partition} is the bridge's: {line!r:.60}")
