"""Counts how often a worker was fenced: after a pause once, by a twin again and again. Pure."""

from collections import deque

_FENCES, _SECONDS = 5, 60
"""A worker that was paused beyond its transaction's time-out is fenced once. Two workers with one transactional id fence each
other again and again; so many fences within so many seconds are taken for the latter."""


class Fences:
    def __init__(self) -> None:
        self._at: deque[float] = deque(maxlen=_FENCES)

    def note(self, now: float) -> None:
        """Note that the worker was fenced, at an instant in seconds."""
        self._at.append(now)

    def has_twin(self, now: float) -> bool:
        """Return whether another worker certainly uses the transactional id."""
        return len(self._at) == _FENCES and now - self._at[0] < _SECONDS
