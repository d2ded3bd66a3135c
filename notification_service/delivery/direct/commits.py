"""The commits of one stage: which positions leave next, and since when they have waited."""

from collections.abc import Callable, Mapping
from time import monotonic

from guardian.ports import PartitionOutput
from notification_service.delivery.direct.owned import Owned
from resequencer.record import Partition

_SECONDS = 0.2
_BYTES = 8 << 20
_WRITING_SHARE = 10


class Commits:
    """An attempt whose outcome is unknown is made again unchanged. `owned` are the partitions of this worker, as they change.

    `passed` returns the milliseconds that have passed since some instant, with those in which the machine was suspended.
    """

    def __init__(self, owned: Mapping[Partition, Owned], passed: Callable[[], int]) -> None:
        self._owned, self._passed = owned, passed
        self._attempt: list[tuple[Owned, PartitionOutput]] = []
        self._due_at = 0.0
        self._waits_since: int | None = None
        self.is_refused = False
        """Whether the last commit was refused."""

    @property
    def are_due(self) -> bool:
        return monotonic() > self._due_at

    @property
    def has_more(self) -> bool:
        """Whether something is not committed."""
        return bool(self._attempt) or any(each.state.has_news for each in self._owned.values())

    def find_wait_ms(self) -> int:
        """Return for how long what is done has not been committed; 0 if all is."""
        return 0 if self._waits_since is None else self._passed() - self._waits_since

    def next(self) -> list[PartitionOutput]:
        """Return what is to be published now, in one transaction. Call `left` when it was, or `withdraw` if nothing was."""
        self._attempt = [(owned, output) for owned, output in self._attempt if self._is_ours(owned)]
        if not self._attempt:
            self._attempt = self._made()
        if not self._attempt:
            # Nothing could be refused again: what was refused is another worker's by now, or was taken over anew.
            self._waits_since, self.is_refused = None, self.is_refused and not self._owned
        elif self._waits_since is None:
            self._waits_since = self._passed()
        return [output for _, output in self._attempt]

    def left(self) -> None:
        """Note that the attempt was published."""
        for owned, output in self._attempt:
            owned.state.published(output)
            owned.position, owned.attempted = output.position, None
        self._attempt, self._waits_since, self.is_refused = [], None, False

    def withdraw(self) -> None:
        """Note that nothing of the attempt was published: it is made anew."""
        for owned, _ in self._attempt:
            owned.state.has_news, owned.attempted = True, None
        self._attempt = []

    def forget(self) -> None:
        """Forget the attempt: the next owner of each partition finds out what has left."""
        self._attempt = []

    def _made(self) -> list[tuple[Owned, PartitionOutput]]:
        attempt: list[tuple[Owned, PartitionOutput]] = []
        taken, begun = 0, monotonic()
        for owned in self._owned.values():
            if owned.state.has_news and taken < _BYTES:
                taken += owned.state.leaving_bytes
                owned.attempted = owned.state.output()
                attempt.append((owned, owned.attempted))
        # Long lists of what is done take long to write: most of the time is left for calls.
        self._due_at = monotonic() + max(_SECONDS, _WRITING_SHARE * (monotonic() - begun))
        return attempt

    def _is_ours(self, owned: Owned) -> bool:
        return self._owned.get(owned.state.partition) is owned
