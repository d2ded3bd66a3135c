"""Measures how long the same call has been running. Pure: instants are handed in."""

_FEWEST_MS, _MAX_MS = 20, 1_000
_LOOKS = 10
"""How many looks there are within a limit, at least."""


class CallWatch:
    """Counts the time between two looks that found the same call.

    A pause of the watcher itself (a suspended machine) counts as two intervals at most: the worker could do nothing meanwhile.
    """

    def __init__(self, limit_ms: int) -> None:
        self._limit_ms = limit_ms
        self.interval_ms = min(max(limit_ms // _LOOKS, _FEWEST_MS), _MAX_MS)
        """How often to look, in milliseconds."""
        self.elapsed_ms = 0
        """How long the call was seen to run, in milliseconds."""
        self._call: int | None = None
        self._looked_at = 0

    @property
    def is_over(self) -> bool:
        """Whether the call has run for longer than the limit."""
        return self.elapsed_ms > self._limit_ms

    def look(self, call: int | None, now: int) -> None:
        """Record the call that runs now; None if none does."""
        since, self._looked_at = now - self._looked_at, now
        if call is None or call != self._call:
            self._call, self.elapsed_ms = call, 0
        else:
            self.elapsed_ms += min(since, 2 * self.interval_ms)

    def forgive(self) -> None:
        """Start to count anew."""
        self.elapsed_ms = 0
