"""Charts as inline SVG: plain or stacked columns over an axis, with vertical lines at values of interest.

Horizontal places are percentages and vertical ones pixels. So a chart fits any width, and its texts keep their size.
"""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

_PLOT_HEIGHT = 180
_TITLE_HEIGHT, _LINE_HEIGHT, _AXIS_HEIGHT = 22, 17, 42
_GRID_LINES = 4
_CHARACTER = 7
"""The approximate width of one character of a label, in pixels."""

_WIDTHS = {"narrow": 270, "wide": 520}
"""The least width of the plot on narrow and on wide pages, in pixels; page.css shows the labels of one of them."""

SERIES = 8
"""The number of series that page.css has colours for."""


class Column(NamedTuple):
    """`tick` is the label at its left side; `parts` are stacked, one per series, the first at the bottom."""

    tick: str
    name: str
    parts: tuple[int, ...]

    @property
    def total(self) -> int:
        return sum(self.parts)


class Line(NamedTuple):
    """A vertical line at a place between 0 and the number of columns. `kind` is its class in page.css."""

    kind: str
    place: float
    label: str


class Chart(NamedTuple):
    """`name` is an id that is unique on the page. `description` says in words what the chart shows.

    `end` is the label at the right end of the axis, and may be empty.
    """

    name: str
    title: str
    description: str
    counted: str
    axis: str
    columns: Sequence[Column]
    series: Sequence[str]
    end: str = ""
    lines: Sequence[Line] = ()


def columns_chart(chart: Chart) -> str:
    """Return an SVG element, and the key of the colours if there are several series."""
    top = nice_top(max((each.total for each in chart.columns), default=0))
    above = _TITLE_HEIGHT + len(chart.lines) * _LINE_HEIGHT
    below = above + _PLOT_HEIGHT
    step = 100 / max(1, len(chart.columns))
    drawn = [
        *_grid(top, below),
        *(part for at, each in enumerate(chart.columns) for part in _column(each, at * step, step, top, below, chart.series)),
        *_ticks([*(each.tick for each in chart.columns), chart.end], step, below),
        *_lines(chart.lines, step, below),
        f'<text class="title" x="-56" y="12">{escape(chart.counted)}</text>',
        f'<text class="title middle" x="50%" y="{below + 38}">{escape(chart.axis)}</text>',
    ]
    return (
        f'<svg class="chart" height="{below + _AXIS_HEIGHT}" role="img" aria-labelledby="{chart.name}-title {chart.name}-said">'
        f'<title id="{chart.name}-title">{escape(chart.title)}</title>'
        f'<desc id="{chart.name}-said">{escape(chart.description)}</desc>{"".join(drawn)}</svg>{_legend(chart.series)}'
    )


def nice_top(highest: int) -> int:
    """Return the upper end of the axis: a round number that the grid lines divide into whole numbers."""
    unit = 1
    while True:
        for factor in (4, 8, 12, 20):
            if highest <= factor * unit:
                return factor * unit
        unit *= 10


def _legend(series: Sequence[str]) -> str:
    if len(series) < 2:
        return ""
    items = (f'<li><i class="series-{at % SERIES + 1}"></i>{escape(name)}</li>' for at, name in enumerate(series))
    return f'<ul class="legend">{"".join(items)}</ul>'


def _grid(top: int, below: int) -> list[str]:
    drawn = []
    for at in range(_GRID_LINES + 1):
        y = below - _PLOT_HEIGHT * at / _GRID_LINES
        drawn.append(f'<line class="{"grid" if at else "base"}" x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>')
        drawn.append(f'<text class="end" x="-8" y="{y + 4:.1f}">{_short(top * at // _GRID_LINES)}</text>')
    return drawn


def _column(column: Column, x: float, step: float, top: int, below: int, series: Sequence[str]) -> list[str]:
    drawn, height = [], 0.0
    for number, part in enumerate(column.parts):
        if not part:
            continue
        own = max(part / top * _PLOT_HEIGHT, 1)
        height += own
        told = f"{column.name}: {part:,}" + (f" {series[number]}" if len(series) > 1 else "")
        drawn.append(
            f'<rect class="series-{number % SERIES + 1}" x="{x + step * 0.06:.2f}%" y="{below - height:.1f}" '
            f'width="{step * 0.88:.2f}%" height="{own:.1f}"><title>{escape(told)}</title></rect>'
        )
    return drawn


def _ticks(labels: Sequence[str], step: float, below: int) -> list[str]:
    """Return the labels below the axis: as many on narrow and on wide pages as do not touch."""
    longest = max(map(len, labels), default=0)
    every = {name: int((longest + 2) * _CHARACTER // (width * step / 100)) + 1 for name, width in _WIDTHS.items()}
    drawn = []
    for at, label in enumerate(labels):
        shown = [name for name, count in every.items() if at % count == 0]
        if shown and label:
            kind = "tick" if len(shown) == len(_WIDTHS) else f"tick {shown[0]}"
            x = f"{at * step:.2f}%"
            drawn.append(f'<line class="base" x1="{x}" x2="{x}" y1="{below}" y2="{below + 4}"/>')
            drawn.append(f'<text class="middle {kind}" x="{x}" y="{below + 17}">{escape(label)}</text>')
    return drawn


def _lines(lines: Sequence[Line], step: float, below: int) -> list[str]:
    """Return the lines, then their labels: each label is on a line of text of its own, and is drawn over what crosses it."""
    drawn, labels = [], []
    for at, each in enumerate(lines):
        x, y = each.place * step, _TITLE_HEIGHT + at * _LINE_HEIGHT
        side, shift = ("end", -5) if x > 50 else ("start", 5)
        drawn.append(f'<line class="mark {each.kind}" x1="{x:.2f}%" x2="{x:.2f}%" y1="{y}" y2="{below}"/>')
        labels.append(f'<text class="mark {side}" x="{x:.2f}%" dx="{shift}" y="{y + 11}">{escape(each.label)}</text>')
    return drawn + labels


def _short(count: int) -> str:
    return f"{count:,}" if count < 1_000_000 else f"{count / 1_000_000:g} M"
