"""The history as bars in an inline SVG, with its figures as text."""

from collections.abc import Sequence
from typing import NamedTuple

from notification_service.console.history import Minute
from resequencer.clock import Instant

_WIDTH, _HEIGHT = 720, 90
_BARS = 72


class Bar(NamedTuple):
    """One bar in the units of the drawing, with what it stands for: `at` its beginning, `per_second` its height."""

    x: float
    y: float
    width: float
    height: float
    at: Instant
    per_second: float


class HistoryChart(NamedTuple):
    """Bars of equal spans. `most` is the scale's end, per second."""

    title: str
    bars: tuple[Bar, ...]
    most: float
    width: int = _WIDTH
    height: int = _HEIGHT


def history_chart(title: str, minutes: Sequence[Minute], column: str, since: Instant, now: Instant) -> HistoryChart:
    """Draw `column` of the minutes between the two instants, per second."""
    span = max(60_000, (now - since) // _BARS // 60_000 * 60_000)
    sums: dict[int, int] = {}
    for each in minutes:
        place = (each.minute - since) // span
        if 0 <= place < _BARS:
            sums[place] = sums.get(place, 0) + getattr(each, column)
    rates = {place: 1_000 * value / span for place, value in sums.items()}
    most = max(rates.values(), default=0.0)
    width = _WIDTH / _BARS
    bars = tuple(
        Bar(
            round(place * width, 1),
            round(_HEIGHT - _HEIGHT * rate / most, 1),
            round(width - 1, 1),
            round(_HEIGHT * rate / most, 1),
            since + place * span,
            rate,
        )
        for place, rate in sorted(rates.items())
        if rate
    )
    return HistoryChart(title, bars, most)
