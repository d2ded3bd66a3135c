"""The clock that is handed in wherever an instant is needed."""

from typing import Protocol, TypeAlias

Instant: TypeAlias = int
"""Milliseconds since 1970-01-01T00:00Z. Names that hold one end in `_at`."""


class Clock(Protocol):
    """Tells the instant. A wall clock: it may jump either way, and deadlines that were stored must still mean something."""

    def now(self) -> Instant: ...
