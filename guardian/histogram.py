"""Histograms of durations with fixed bounds, as Prometheus has them."""

from bisect import bisect_left
from collections.abc import Iterable
from functools import cache
from itertools import accumulate

import msgspec

STEP_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""For what a worker does within a cycle, in seconds. Clocks count milliseconds, so the first bucket holds 0 and 1 ms."""

WAIT_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0, 7_200.0, 86_400.0)
"""For how long an envelope takes, in seconds: from at once to a day."""


class HistogramReport(msgspec.Struct, frozen=True):
    """How many durations were at most each of `bounds` (seconds, ascending), and their sum in seconds.

    `counts` are cumulative, and one longer than `bounds`: the last one counts all durations.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float


class Histogram:
    """Counts durations of one kind since the worker's start. A negative duration (a clock was set back) counts as 0."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._bounds_ms = _in_ms(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum_ms = 0

    def observe(self, duration_ms: int) -> None:
        self.observe_all((duration_ms,))

    def observe_all(self, durations_ms: Iterable[int]) -> None:
        bounds_ms, counts = self._bounds_ms, self._counts
        for each in durations_ms:
            taken = max(0, each)
            counts[bisect_left(bounds_ms, taken)] += 1
            self._sum_ms += taken

    def report(self) -> HistogramReport:
        return HistogramReport(self._bounds, tuple(accumulate(self._counts)), self._sum_ms / 1_000)


@cache
def _in_ms(bounds: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(each * 1_000 for each in bounds)


def sum_of(reports: Iterable[HistogramReport]) -> HistogramReport:
    """The histogram over several workers, of at least one report. Reports with other bounds than the first are left out."""
    first, *others = reports
    same = [first, *(each for each in others if each.bounds == first.bounds)]
    counts = tuple(sum(column) for column in zip(*(each.counts for each in same), strict=True))
    return HistogramReport(first.bounds, counts, sum(each.sum for each in same))
