"""The names of a partition's keys in Redis."""

from collections.abc import Iterable

from resequencer.record import Partition


class RedisKeys:
    """The keys begin with one hash tag, so that a cluster keeps a whole partition in one slot.

    Namespace and topic contain neither colons nor braces. A unit's id may contain any character, so it comes last.
    """

    def __init__(self, namespace: str, partition: Partition) -> None:
        self.tag = f"{{{namespace}:{partition.topic}:{partition.number}}}"
        self.header = f"{self.tag}:header".encode()
        self.waiting = f"{self.tag}:waiting".encode()
        self.pending = f"{self.tag}:pending".encode()
        self.changes = f"{self.tag}:changes".encode()
        self.idle = f"{self.tag}:idle".encode()
        self.unit_prefix = f"{self.tag}:unit:".encode()

    def units(self, units: Iterable[str]) -> list[bytes]:
        return [self.unit_prefix + unit.encode() for unit in units]
