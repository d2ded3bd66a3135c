"""The marker of a partition of the source: a record that tells how far the partition has left through a sink. Pure.

The markers' topic is compacted. The key of a marker is the transactional id of the partition's owner, which names the service and
the partition; the last record with a key counts. All markers are in the topic's first partition, so that one look there finds a
marker however many partitions the topic gets.
"""

import msgspec

from guardian.ports import PartitionOutput, Position, TransportRefused
from notification_service.connectors.kafka.core.records import ProducerRecord

PARTITION = 0
"""The partition of the topic that has all markers."""


class Marker(msgspec.Struct, frozen=True):
    """`highest` is the highest number that has left, 0 for none."""

    offset: int
    metadata: str
    highest: int

    @property
    def position(self) -> Position:
        return Position(self.offset, self.metadata, highest=self.highest)

    def to_record(self, topic: str, key: str) -> ProducerRecord:
        return ProducerRecord(topic, key.encode(), (), msgspec.json.encode(self), PARTITION)


def highest_of(marker: Marker | None) -> int:
    """Return the highest number that has left; None is the marker of a partition from which nothing has left."""
    return 0 if marker is None else marker.highest


def marker_after(marker: Marker | None, output: PartitionOutput) -> Marker:
    """Return the marker once this output has left."""
    highest = max([highest_of(marker), output.position.highest, *(each.number for each in output.records)])
    return Marker(output.position.offset, output.position.metadata, highest)


def decode_marker(topic: str, key: str, value: bytes | None) -> Marker | None:
    """Return the marker in a record. None if it was deleted: as if nothing had left.

    Raises:
        TransportRefused: Another program has written the record.
    """
    if value is None:
        return None
    try:
        return msgspec.json.decode(value, type=Marker)
    except (msgspec.DecodeError, RecursionError) as error:
        problem = f"the last record with the key {key} is no marker ({error}): another program writes to the topic"
        raise TransportRefused(f"topic {topic}", f"{problem}. Set another kafka.markers.topic") from error
