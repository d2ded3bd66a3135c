"""Charts as inline SVG: plain or stacked columns. A tooltip on each column shows its value."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

_WIDTH, _HEIGHT = 720, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 8, 12, 40
_GRID_LINES = 4
_CHARACTER = 7
"""The approximate width of one character in a label."""

_COLORS = 12
"""The number of colours that the page defines (`.c0` …); further series reuse them."""


class Column(NamedTuple):
    """`parts` are stacked, one per series, the first at the bottom."""

    label: str
    parts: tuple[int, ...]

    @property
    def total(self) -> int:
        return sum(self.parts)


def columns_chart(columns: Sequence[Column], series: Sequence[str], axis: str) -> str:
    """Return an SVG element. `series` names the parts, `axis` describes the labels."""
    highest = max((each.total for each in columns), default=0)
    top = nice_top(highest)
    step = (_WIDTH - _LEFT - _RIGHT) / max(1, len(columns))
    drawn = [_grid(top), *(_column(each, at, step, top, series) for at, each in enumerate(columns))]
    every = _every([each.label for each in columns], step)
    drawn += [_label(each.label, at, step) for at, each in enumerate(columns) if at % every == 0]
    drawn.append(f'<text class="axis" x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{_HEIGHT - 4}">{escape(axis)}</text>')
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(axis)}">{"".join(drawn)}</svg>'


def legend(series: Sequence[str]) -> str:
    """Return the key of the colours; empty if there is only one series."""
    if len(series) < 2:
        return ""
    items = (f'<span><i class="c{at % _COLORS}"></i>{escape(name)}</span>' for at, name in enumerate(series))
    return f'<p class="legend">{"".join(items)}</p>'


def nice_top(highest: int) -> int:
    """Return the upper end of the axis: a round number that the grid lines divide into whole numbers."""
    unit = 1
    while True:
        for factor in (4, 8, 12, 20):
            if highest <= factor * unit:
                return factor * unit
        unit *= 10


def _grid(top: int) -> str:
    lines = []
    for at in range(_GRID_LINES + 1):
        y = _y(top * at / _GRID_LINES, top)
        lines.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(f'<text class="value" x="{_LEFT - 6}" y="{y + 4:.1f}">{top * at // _GRID_LINES:,}</text>')
    return "".join(lines)


def _column(column: Column, at: int, step: float, top: int, series: Sequence[str]) -> str:
    drawn, below = [], 0
    for number, part in enumerate(column.parts):
        if not part:
            continue
        y, height = _y(below + part, top), _y(below, top) - _y(below + part, top)
        told = f"{column.label}: {part:,}" + (f" {series[number]}" if len(series) > 1 else "")
        drawn.append(
            f'<rect class="c{number % _COLORS}" x="{_LEFT + at * step + step * 0.1:.1f}" y="{y:.1f}" width="{step * 0.8:.1f}" '
            f'height="{max(height, 0.5):.1f}"><title>{escape(told)}</title></rect>'
        )
        below += part
    return "".join(drawn)


def _label(text: str, at: int, step: float) -> str:
    return f'<text class="label" x="{_LEFT + (at + 0.5) * step:.1f}" y="{_HEIGHT - _BOTTOM + 16}">{escape(text)}</text>'


def _every(labels: Sequence[str], step: float) -> int:
    """Return n so that only every n-th label is drawn and labels do not touch."""
    longest = max(map(len, labels), default=0)
    return int((longest + 2) * _CHARACTER // step) + 1


def _y(value: float, top: int) -> float:
    return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - value / top)
