"""Instants and durations as texts for people."""

from datetime import UTC, datetime
from itertools import pairwise

from resequencer.clock import Instant

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))


def instant_words(at: Instant) -> str:
    """`2026-03-28 23:33:57 UTC`."""
    return f"{_moment(at):%Y-%m-%d %H:%M:%S} UTC"


def clock_label(at: Instant, interval_ms: int) -> str:
    """Return as much of the instant as tells the intervals of an axis apart."""
    moment = _moment(at)
    if interval_ms < 1_000:
        return f"{moment:%H:%M:%S}.{at % 1_000 // 100}"
    if interval_ms < 60_000:
        return f"{moment:%H:%M:%S}"
    return f"{moment:%m-%d %H:%M}" if interval_ms < 86_400_000 else f"{moment:%Y-%m-%d}"


def duration_words(milliseconds: int) -> str:
    """`0 ms`, `941 ms`, `2.5 s`, `21 s`, `1 min 40 s`, `3 h`: two units at most, rounded down."""
    if milliseconds < 1_000:
        return f"{milliseconds} ms"
    if milliseconds < 20_000:
        return f"{milliseconds // 100 / 10:g} s"
    for (unit, length), (smaller, part) in pairwise(_UNITS):
        if milliseconds >= length:
            rest = milliseconds % length // part
            return f"{milliseconds // length:,} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{milliseconds // 1_000} s"


def _moment(at: Instant) -> datetime:
    return datetime.fromtimestamp(at / 1_000, UTC)
