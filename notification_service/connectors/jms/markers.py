"""The marker of a partition: a message that tells how far the partition has left through a sink. Pure.

There is one for each partition of the source. Whoever changes it takes the message away and sends another in its place, in one
transaction. So a marker has an id that no other one ever had, and a worker whose marker is gone is not the owner any more.
"""

import msgspec

from guardian.ports import PartitionOutput, Position
from resequencer.record import Partition

PARTITION_PROPERTY = "source_partition"
"""The property by which a partition's marker is selected."""


class Marker(msgspec.Struct, frozen=True):
    """`offset` is None as long as nothing has left. `highest` is the highest number that has left, 0 for none."""

    offset: int | None = None
    metadata: str = ""
    highest: int = 0

    @property
    def position(self) -> Position | None:
        return None if self.offset is None else Position(self.offset, self.metadata, highest=self.highest)

    def after(self, output: PartitionOutput) -> "Marker":
        """Return the marker once this output has left."""
        highest = max(self.highest, output.position.highest, *(each.number for each in output.records), 0)
        return Marker(output.position.offset, output.position.metadata, highest)

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()


def decode_marker(text: object) -> Marker | None:
    """Return the marker in a message's body; None if another program has written it."""
    try:
        return msgspec.json.decode(text, type=Marker) if isinstance(text, str) else None
    except (msgspec.DecodeError, RecursionError):
        return None


def selector_of(partition: Partition) -> str:
    """Return the selector that takes the partition's marker alone."""
    name = str(partition).replace("'", "''")
    return f"{PARTITION_PROPERTY} = '{name}'"
