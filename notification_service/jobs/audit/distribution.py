"""A distribution of whole numbers, counted in bins so that it is small however many values there were."""

import msgspec

COUNTS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 1_000_000)
"""The starts of the bins of a distribution of counts."""

_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
DURATIONS_MS = (
    *(0, 1, 2, 5, 10, 20, 50, 100, 200, 500, _SECOND, 2 * _SECOND, 5 * _SECOND, 10 * _SECOND, 20 * _SECOND),
    *(_MINUTE, 2 * _MINUTE, 5 * _MINUTE, 10 * _MINUTE, 20 * _MINUTE, _HOUR, 3 * _HOUR, 12 * _HOUR, _DAY, 7 * _DAY),
)
"""The starts of the bins of a distribution of durations, in ms."""


class Bin(msgspec.Struct, frozen=True):
    """The number of values from `start` to before the next bin's start."""

    start: int
    count: int


class Distribution(msgspec.Struct, frozen=True):
    """`bins` follow each other without a gap and start at 0; there are none if there are no values.

    `median` and `percentile_99` are values of the distribution, None if there are none.
    """

    bins: tuple[Bin, ...] = ()
    median: int | None = None
    percentile_99: int | None = None


class Span(msgspec.Struct, frozen=True):
    """A bin with its end: the values from `start` to before `end`; None if the bin has no end."""

    start: int
    end: int | None
    count: int


def spans_of(distribution: Distribution, bounds: tuple[int, ...], shown: int | None = None) -> list[Span]:
    """Return the bins from the first one with a value on, and up to that of `shown`. `bounds` are those it was counted with."""
    counts = {each.start: each.count for each in distribution.bins}
    if not counts:
        return []
    last = max(max(counts), shown or 0)
    ends = (*bounds[1:], None)
    spans = [Span(start, end, counts.get(start, 0)) for start, end in zip(bounds, ends, strict=True) if start <= last]
    first = next((at for at, each in enumerate(spans) if each.count), 0)
    return spans[first:]


def place_of(value: int, spans: list[Span]) -> float:
    """Return where a value lies on an axis on which each span is 1 long: between 0 and the number of spans."""
    for at, each in enumerate(spans):
        if value < each.start:
            return at
        if each.end is None:
            return at + 0.5
        if value < each.end:
            return at + (value - each.start + 0.5) / (each.end - each.start)
    return len(spans)
