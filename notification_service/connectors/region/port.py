"""The two halves of a transport whose input and output are of different kinds: a source, and one or several sinks.

They are the participants of a region (docs/regions.md). `notification_service/connectors/region/transport.py` makes a transport
of them. What a participant can do is data, so that `check` can refuse what it cannot.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import msgspec

from guardian.ports import PartitionOutput, Polled, Position, TransportStatus
from resequencer.record import Partition


class SourceCapabilities(msgspec.Struct, frozen=True):
    """What a source can do.

    `can_replay`: it can be read again from an offset, so a storage that has lost commits can be healed from it. `remembers`: it
    keeps the position that was acknowledged, with its metadata. `window` is for a source that cannot replay: the most records
    that it hands out before they are acknowledged.
    """

    can_replay: bool
    remembers: bool
    window: int = 0


class SinkCapabilities(msgspec.Struct, frozen=True):
    """What a sink can do.

    `is_transactional`: the records of one partition and its position leave together or not at all. `remembers`: it keeps the
    position that left with the records, and passes over a record that comes again. A sink that does not remember sends a record
    again after a reset: at least once.
    """

    is_transactional: bool
    remembers: bool


class Source(Protocol):
    """Reads records. The calls are those of `Transport`, except `acknowledge`. Used from one thread."""

    @property
    def capabilities(self) -> SourceCapabilities: ...

    def standing(self) -> TransportStatus: ...

    def assignment(self) -> Collection[Partition]: ...

    def position(self, partition: Partition) -> Position | None:
        """Read the last acknowledged position, with its metadata; None without one, and for a source that does not remember."""
        ...

    def source(self, partition: Partition) -> str: ...

    def start_offset(self, partition: Partition) -> int: ...

    def end_offset(self, partition: Partition) -> int: ...

    def seek(self, partition: Partition, offset: int, source_state: str = "") -> None: ...

    def poll(self, max_records: int, timeout_ms: int, resting: Collection[Partition] = ()) -> Polled: ...

    def check_owned(self, partitions: Collection[Partition]) -> None:
        """Check that these partitions are assigned to this worker as of its last poll.

        Raises:
            PublishRefused: One is not. Nothing may be sent for it.
        """
        ...

    def acknowledge(self, positions: Mapping[Partition, Position]) -> None:
        """Acknowledge all records before these positions, durably. Called once every sink has their output.

        Repeating the call is safe. A source that remembers keeps the metadata.

        Raises:
            TransportUnavailable: The source does not answer; the positions may be acknowledged.
            PublishRefused: The worker does not own a partition any more; what is not acknowledged comes again to its owner.
        """
        ...

    def close(self) -> None: ...


class Sink(Protocol):
    """Sends output records. Used from one thread."""

    @property
    def capabilities(self) -> SinkCapabilities: ...

    @property
    def notes(self) -> Sequence[str]:
        """Sentences for an operator about problems that do not stop the service."""
        ...

    def position(self, partition: Partition) -> Position | None:
        """Read the last position that left through this sink, and the highest number; None if nothing ever left.

        The call also fences: from then on, an earlier owner's publications through this sink are refused. A sink that does not
        remember returns None.

        Raises:
            TransportUnavailable: No answer, or an earlier owner's publication is undecided.
        """
        ...

    def publish(self, outputs: Sequence[PartitionOutput]) -> None:
        """Send all records, and keep the positions with them, durably. Records that have left through this sink are passed over.

        Returns when every record is confirmed. Channels that the sink does not have are passed over.

        Raises: as `Transport.publish`.
        """
        ...

    def close(self) -> None: ...
