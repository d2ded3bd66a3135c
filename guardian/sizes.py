"""How much is done at once.

The batch size of a cycle is chosen so that the cycle ends in time: a worker that has to stop finishes its cycle first. Pending
output is published in portions that fit into the time of a transaction.
"""

from collections.abc import Collection

from guardian.owned_partition import OwnedPartition
from guardian.ports import NotPublished, PartitionOutput, Transport
from resequencer.clock import Clock

_FIRST = 50


class BatchSize:
    """How many records a cycle may poll and how many units it may wake: as many as take about `target_ms`, from 1 to `limit`.

    The cost of one is an average over the cycles before; the latest counts half. The first batch is small, because the speed of
    the handlers is unknown.
    """

    def __init__(self, limit: int, target_ms: int) -> None:
        assert limit > 0
        assert target_ms > 0
        self._limit = limit
        self._target_ms = target_ms
        self._cost_ms: float | None = None

    @property
    def at_once(self) -> int:
        if self._cost_ms is None:
            return min(self._limit, _FIRST)
        if self._cost_ms * self._limit <= self._target_ms:
            return self._limit
        return max(1, int(self._target_ms / self._cost_ms))

    def note(self, count: int, took_ms: int) -> None:
        """Learn from a cycle with `count` records, woken units or equivalents of output. A negative duration is ignored."""
        if count <= 0 or took_ms < 0:
            return
        cost_ms = took_ms / count
        self._cost_ms = cost_ms if self._cost_ms is None else (self._cost_ms + cost_ms) / 2


_TARGET_MS = 2_000
"""Target duration of a portion. A worker that has to stop does so between two portions."""


class PublicationSize:
    """Publish one portion at a time, at first of `max_bytes`.

    After a portion that failed, the next has half the size. After a portion that took longer than `_TARGET_MS` the next is
    smaller. After a portion that took less than a quarter of `_TARGET_MS` the next has twice the size, up to `max_bytes`.
    """

    def __init__(self, transport: Transport, clock: Clock, max_bytes: int) -> None:
        self._transport = transport
        self._clock = clock
        self._max_bytes = max_bytes
        self.size = max_bytes

    def publish(self, news: Collection[OwnedPartition]) -> None:
        """Publish one portion of these partitions' output. After an error, call it again with the same partitions.

        Raises: as `Transport.publish`.
        """
        outputs, size = self._outputs(news)
        began_at = self._clock.now()
        try:
            self._transport.publish(list(outputs.values()))
        except NotPublished:
            self.size = max(1, self.size // 2)
            for owned in outputs:
                owned.give_up_attempt()
            raise
        now = self._clock.now()
        for owned, output in outputs.items():
            owned.note_published(output, now)
        if size:
            self._learn(size, now - began_at)

    def _outputs(self, news: Collection[OwnedPartition]) -> tuple[dict[OwnedPartition, PartitionOutput], int]:
        """Return the next portion by partition, and its size in bytes; 0 if it repeats an attempt.

        Attempts that may have been published are repeated first, unchanged. Otherwise the bytes are divided
        among the partitions. Those with the fewest unpublished records come first, so that none waits for a partition with more.
        """
        if tried := {owned: owned.attempt for owned in news if owned.attempt is not None}:
            return tried, 0
        outputs, taken = dict[OwnedPartition, PartitionOutput](), 0
        for at, owned in enumerate(sorted(news, key=lambda each: len(each.unpublished))):
            if taken < self.size or not owned.unpublished:
                count, size = owned.fits_within((self.size - taken) // (len(news) - at))
                outputs[owned] = owned.output(count)
                taken += size
        return outputs, taken

    def _learn(self, size: int, took_ms: int) -> None:
        if took_ms > _TARGET_MS:
            self.size = max(1, size * _TARGET_MS // took_ms)
        elif took_ms < _TARGET_MS // 4 and 2 * size > self.size:
            self.size = min(self._max_bytes, 2 * self.size)
