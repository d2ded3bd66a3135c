"""Which partitions could not be taken over yet, why, and when each is tried again. Pure."""

from typing import NamedTuple

from domain.clock import Instant
from domain.record import Partition
from guardian.backoff import BackoffSettings


class Untaken(NamedTuple):
    """`what` is away (`source`, `storage`, `output`), in the words of `reason`; after `next_at` it is tried again."""

    what: str
    reason: str
    next_at: Instant
    pause_ms: int


class TakeoverBackoff:
    """Puts takeovers off, each for twice as long as the last time, so that the partitions that can be served are."""

    def __init__(self, settings: BackoffSettings) -> None:
        self._settings = settings
        self.untaken: dict[Partition, Untaken] = {}

    @property
    def next_at(self) -> Instant | None:
        """When the next one is to be tried, None if none is."""
        return min((each.next_at for each in self.untaken.values()), default=None)

    def is_due(self, partition: Partition, now: Instant) -> bool:
        """A clock that was set back does not keep anybody waiting."""
        known = self.untaken.get(partition)
        return known is None or not 0 < known.next_at - now <= known.pause_ms

    def put_off(self, partition: Partition, what: str, reason: str, now: Instant) -> bool:
        """Whether it is the first time since it was last taken."""
        known = self.untaken.get(partition)
        pause_ms = min(2 * known.pause_ms, self._settings.longest_pause_ms) if known else self._settings.first_pause_ms
        self.untaken[partition] = Untaken(what, reason, now + pause_ms, pause_ms)
        return known is None

    def forget(self, partition: Partition) -> None:
        """It was taken, or is not ours any more."""
        self.untaken.pop(partition, None)
