"""What notifications show about time: the latest instant at which a record was read, and how long the service was running.

Files do not record when a record was written or read. But output caused by a later record of the partition was made later.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from resequencer.clock import Instant

BUCKETS = 1_024
"""The number of buckets that a partition is cut into. A bucket's instants bound those of the records in earlier buckets."""


class Made(NamedTuple):
    """The first and last instant at which output was made of the records of one bucket of a partition."""

    partition: int
    bucket: int
    first: Instant
    last: Instant


def bucket_size(length: int) -> int:
    """Return the bucket's size in offsets, for a partition of that length."""
    return max(1, -(-length // BUCKETS))


class Timing:
    """`made` has one entry per bucket. `lengths` holds for each partition the offset after its last envelope that counted.

    `paused` holds for how many milliseconds operators paused a partition, None for one that still is paused.
    """

    def __init__(self, made: Iterable[Made], lengths: Mapping[int, int], paused: Mapping[int, int | None] = {}) -> None:
        self.lengths = lengths
        self.paused = paused
        self._sizes = {partition: bucket_size(length) for partition, length in lengths.items()}
        self._last: dict[int, Instant] = {}
        self._firsts: dict[int, list[tuple[int, Instant]]] = {}
        for each in sorted(made, reverse=True):
            self._last[each.partition] = max(each.last, self._last.get(each.partition, each.last))
            firsts = self._firsts.setdefault(each.partition, [])
            firsts.append((each.bucket, min(each.first, firsts[-1][1]) if firsts else each.first))

    def find_waited_ms(self, partition: int, offset: int) -> int | None:
        """Return how long a record has at least waited when its partition last made output; None if unknown."""
        bucket = offset // self._sizes.get(partition, 1)
        # Buckets descend, and instants descend with them.
        later = [first for each, first in self._firsts.get(partition, ()) if each > bucket]
        return self._last[partition] - later[-1] if later else None
