"""The clock that is handed in wherever an instant is needed."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Protocol, TypeAlias

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Instant: TypeAlias = int
"""Milliseconds since 1970-01-01T00:00Z. Names that hold one end in `_at`."""


class Clock(Protocol):
    """Tells the instant. A wall clock: it may jump either way, and deadlines that were stored must still mean something."""

    def now(self) -> Instant: ...


@lru_cache(16)
def instant_text(at: Instant) -> str:
    """`2026-03-28T23:33:55.941Z`: ISO 8601, UTC, to the millisecond. A cycle asks for the same instant again and again."""
    moment = _EPOCH + timedelta(milliseconds=at)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z"


def instant_of(text: str) -> Instant:
    """The instant that an ISO 8601 text says; UTC where it names no zone.

    Raises:
        ValueError: It says none, or one that no clock reaches.
    """
    moment = datetime.fromisoformat(text)
    try:
        return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000)
    except OverflowError as error:
        raise ValueError(f"{text} is beyond all calendars") from error
