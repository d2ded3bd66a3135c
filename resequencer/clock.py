"""The interface of the clock, which is passed to all code that needs an instant."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Protocol, TypeAlias

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Instant: TypeAlias = int
"""Milliseconds since 1970-01-01T00:00Z. Names of instants end in `_at`."""


class Clock(Protocol):
    """A wall clock: it may jump either way. A monotonic clock is not possible, because stored deadlines must stay valid."""

    def now(self) -> Instant: ...


@lru_cache(16)
def instant_text(at: Instant) -> str:
    """Return the instant as `2026-03-28T23:33:55.941Z`: ISO 8601, UTC, to the millisecond. Cached for a cycle's instants."""
    moment = _EPOCH + timedelta(milliseconds=at)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z"


def instant_of(text: str) -> Instant:
    """Return the instant of an ISO 8601 text. A text without a time zone is in UTC.

    Raises:
        ValueError: The text is not an instant, or is out of range.
    """
    moment = datetime.fromisoformat(text)
    try:
        return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000)
    except OverflowError as error:
        raise ValueError(f"{text} is out of range") from error
