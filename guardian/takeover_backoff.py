"""The partitions that could not be taken over yet, with the reason and the time of the next try. Pure."""

from typing import NamedTuple

from guardian.backoff import BackoffSettings
from resequencer.clock import Instant
from resequencer.record import Partition


class Untaken(NamedTuple):
    """Why a partition is not taken over: `what` (`storage` or `output`) is unavailable. The next try is at `next_at`.

    With `is_refused` it answers, and refuses this worker.
    """

    what: str
    reason: str
    next_at: Instant
    pause_ms: int
    is_refused: bool = False


class TakeoverBackoff:
    """Put takeovers off, each for twice as long as the last time. Other partitions are served meanwhile."""

    def __init__(self, settings: BackoffSettings) -> None:
        self._settings = settings
        self.untaken: dict[Partition, Untaken] = {}

    @property
    def next_at(self) -> Instant | None:
        """When the next takeover is due, None if none is put off."""
        return min((each.next_at for each in self.untaken.values()), default=None)

    @property
    def refused(self) -> Untaken | None:
        """A takeover that a server refused although it answers, None if there is none."""
        return next((each for each in self.untaken.values() if each.is_refused), None)

    def is_due(self, partition: Partition, now: Instant) -> bool:
        """Whether a takeover may be tried now. A clock that was set back does not prolong the pause."""
        known = self.untaken.get(partition)
        return known is None or not 0 < known.next_at - now <= known.pause_ms

    def put_off(self, partition: Partition, what: str, reason: str, now: Instant, *, is_refused: bool = False) -> bool:
        """Put a takeover off, and return whether this is the first failure since the partition was last owned."""
        known = self.untaken.get(partition)
        pause_ms = min(2 * known.pause_ms, self._settings.longest_pause_ms) if known else self._settings.first_pause_ms
        self.untaken[partition] = Untaken(what, reason, now + pause_ms, pause_ms, is_refused)
        return known is None

    def forget(self, partition: Partition) -> None:
        """Forget a partition that was taken over or is no longer assigned."""
        self.untaken.pop(partition, None)
