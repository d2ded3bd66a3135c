"""What has left through a sink that keeps no marker. Pure.

Such a sink knows nothing after a reset, and sends again. But a call that is made again, as while another sink does not answer,
must not send everything again each time.
"""

from collections.abc import Sequence
from typing import NamedTuple

from guardian.ports import OutputRecord, PartitionOutput
from resequencer.record import Partition


class Numbered(NamedTuple):
    """A record of a partition."""

    partition: Partition
    record: OutputRecord


class Left:
    """The numbers that have left since the partition was taken over."""

    def __init__(self) -> None:
        self._highest: dict[Partition, int] = {}

    def forget(self, partition: Partition) -> None:
        """Begin anew, at a takeover: what came between it and the one before is not known."""
        self._highest.pop(partition, None)

    def remaining(self, outputs: Sequence[PartitionOutput]) -> list[Numbered]:
        """Return the records that have not left, in their order."""
        return [
            Numbered(output.partition, record)
            for output in outputs
            for record in output.records
            if record.number > self._highest.get(output.partition, 0)
        ]

    def note(self, sent: Sequence[Numbered]) -> None:
        """Note that these have left: the first of those that remained, in their order."""
        for partition, record in sent:
            self._highest[partition] = record.number
