"""What notifications tell about time: when a record had been read at the latest, and until when somebody was at work.

Files do not say when a record was written or read. But whatever was made of a later record of the partition was made after.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from domain.clock import Instant

BUCKETS = 1_024
"""Into so many pieces a partition is cut; what a piece tells counts for the records before it."""


class Made(NamedTuple):
    """Of the records from `bucket` (of a partition), the first instant at which something was made, and the last."""

    partition: int
    bucket: int
    first: Instant
    last: Instant


def bucket_size(length: int) -> int:
    """In offsets, of a partition that ends there."""
    return max(1, -(-length // BUCKETS))


class Timing:
    """`made` has one for each bucket. `lengths` are those of the partitions: how far what counts reaches."""

    def __init__(self, made: Iterable[Made], lengths: Mapping[int, int]) -> None:
        self.lengths = lengths
        self._sizes = {partition: bucket_size(length) for partition, length in lengths.items()}
        self._last: dict[int, Instant] = {}
        self._firsts: dict[int, list[tuple[int, Instant]]] = {}
        for each in sorted(made, reverse=True):
            self._last[each.partition] = max(each.last, self._last.get(each.partition, each.last))
            firsts = self._firsts.setdefault(each.partition, [])
            firsts.append((each.bucket, min(each.first, firsts[-1][1]) if firsts else each.first))

    def find_waited_ms(self, partition: int, offset: int) -> int | None:
        """How long a record has waited at least when its partition was last worked on; None if nobody knows."""
        bucket = offset // self._sizes.get(partition, 1)
        # They descend, and the earlier a bucket the earlier its instant.
        later = [first for each, first in self._firsts.get(partition, ()) if each > bucket]
        return self._last[partition] - later[-1] if later else None
