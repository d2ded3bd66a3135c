"""How much leaves at once: what was committed and is pending leaves in portions that a transaction has time for."""

from collections.abc import Collection

from connectors.port import NothingLeft, PartitionOutput, Transport
from domain.clock import Clock
from guardian.owned_partition import OwnedPartition

_TARGET_MS = 2_000
"""A worker that is told to stop does so between two portions."""


class PublicationSize:
    """Publishes a portion at a time: at first of `most` bytes, of half as many after one that failed. One that took longer than
    `_TARGET_MS` is followed by a smaller one, and one that took much less by one of twice its size.
    """

    def __init__(self, transport: Transport, clock: Clock, most: int) -> None:
        self._transport = transport
        self._clock = clock
        self._most = most
        self.size = most

    def publish(self, news: Collection[OwnedPartition]) -> None:
        """One portion of what these have to tell. To be called again, with the same ones, until it is answered.

        Raises: as `Transport.publish`.
        """
        outputs, size = self._outputs(news)
        began_at = self._clock.now()
        try:
            self._transport.publish(list(outputs.values()))
        except NothingLeft:
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
        """What was tried and may have left comes first, and as it was. Else each partition gets a share.

        Those with the fewest come first: none waits for another one that has more.
        """
        if tried := {owned: owned.attempt for owned in news if owned.attempt is not None}:
            return tried, 0
        outputs, taken = dict[OwnedPartition, PartitionOutput](), 0
        for at, owned in enumerate(sorted(news, key=lambda each: len(each.unpublished))):
            if taken < self.size or not owned.unpublished:
                count, size = owned.fitting((self.size - taken) // (len(news) - at))
                outputs[owned] = owned.output(count)
                taken += size
        return outputs, taken

    def _learn(self, size: int, took_ms: int) -> None:
        if took_ms > _TARGET_MS:
            self.size = max(1, size * _TARGET_MS // took_ms)
        elif took_ms < _TARGET_MS // 4 and 2 * size > self.size:
            self.size = min(self._most, 2 * self.size)
