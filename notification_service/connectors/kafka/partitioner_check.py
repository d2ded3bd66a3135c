"""Counts records that are not in the partition that Kafka's default partitioner gives for their key."""

from collections.abc import Iterable
from functools import lru_cache

from kafka.partitioner.default import murmur2

from resequencer.record import Record

_LONGEST_KEY = 256
_REMEMBERED = 4_096

_hash = lru_cache(_REMEMBERED)(murmur2)


class Placement:
    """Counts misplaced records. Records without a key, and those with a key of over 256 bytes, are left out."""

    def __init__(self) -> None:
        self.misplaced = 0

    def look(self, records: Iterable[Record], partitions: int) -> None:
        """Count the misplaced ones among records of a topic that always had this number of partitions."""
        for record in records:
            if record.key is not None and len(record.key) <= _LONGEST_KEY:
                self.misplaced += (_hash(record.key) & 0x7FFFFFFF) % partitions != record.origin.partition.number
