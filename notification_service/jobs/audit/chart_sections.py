"""The page's charts: waiting, envelopes that were overtaken, and notifications over time. Each has its figures as a table."""

from collections import Counter
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

from notification_service.jobs.audit.markup import clock_label, duration_words, foreign, instant_words, prose, section, table
from notification_service.jobs.audit.summary import (
    COUNTS,
    DURATIONS_MS,
    AuditSubject,
    AuditSummary,
    Distribution,
    FlowArrivals,
    Span,
    StatusTime,
    place_of,
    spans_of,
)
from resequencer.clock import Instant
from resequencer.printable import printable

_PLOT_HEIGHT = 180
_TITLE_HEIGHT, _LINE_HEIGHT, _AXIS_HEIGHT = 22, 17, 42
_GRID_LINES = 4
_CHARACTER = 7
"""The approximate width of one character of a label, in pixels."""

_WIDTHS = {"narrow": 270, "wide": 520}
"""The minimum width of the plot on narrow and on wide pages, in pixels; page.css shows the labels of one of them."""

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
        f'<svg class="chart" height="{below + _AXIS_HEIGHT}" role="img" aria-labelledby="{chart.name}-title {chart.name}-text">'
        f'<title id="{chart.name}-title">{escape(chart.title)}</title>'
        f'<desc id="{chart.name}-text">{escape(chart.description)}</desc>{"".join(drawn)}</svg>{_legend(chart.series)}'
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
        title = f"{column.name}: {part:,}" + (f" {series[number]}" if len(series) > 1 else "")
        drawn.append(
            f'<rect class="series-{number % SERIES + 1}" x="{x + step * 0.06:.2f}%" y="{below - height:.1f}" '
            f'width="{step * 0.88:.2f}%" height="{own:.1f}"><title>{escape(title)}</title></rect>'
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


_NOTHING = '<p class="soft">There is nothing to draw.</p>'
_STATUS_LENGTH = 12


class _Measure(NamedTuple):
    """What the axis of a histogram counts: its name, the bounds of its bins, and how a value and a bin read."""

    axis: str
    bounds: tuple[int, ...]
    value: Callable[[int], str]
    bin: Callable[[Span], str]


def chart_sections(summary: AuditSummary, subject: AuditSubject) -> str:
    waiting = _waiting_times(summary.waited_ms, subject) if summary.waited_ms.bins else _waiting_counts(summary.waited_records)
    return "".join(
        (
            section("waiting", "Waiting", waiting),
            section("arrival-order", "Order of arrival", _overtaken(summary.depth) + _flows(summary.flows)),
            section("over-time", "Notifications over time", _statuses(summary)),
        )
    )


def _waiting_times(waited: Distribution, subject: AuditSubject) -> str:
    text = (
        "The time from a record's timestamp to its notification. The deadline counts from the moment at which the service "
        "stashed the envelope, so a wait may be longer than the deadline, for instance after a backlog or an outage."
    )
    name = "longest deadline" if subject.shortest_deadline_ms < subject.longest_deadline_ms else "deadline"
    measure = _Measure("waiting time", DURATIONS_MS, duration_words, _duration_bin)
    deadline = (name, subject.longest_deadline_ms)
    drawn = _histogram("waiting-times", "Waiting times of notifications", "notifications", measure, waited, deadline)
    return f"<p>{text}</p>{drawn}"


def _waiting_counts(waited: Distribution) -> str:
    text = (
        "The number of envelopes of the same unit that arrived while a notification waited. Files do not record when a record "
        "was written, so it is unknown how long the notifications waited, and whether until their deadline."
    )
    measure = _Measure("envelopes of the unit that arrived meanwhile", COUNTS, _count, _count_bin)
    return f"<p>{text}</p>{_histogram('waiting-counts', 'Waiting of notifications', 'notifications', measure, waited)}"


def _overtaken(depth: Distribution) -> str:
    text = (
        "An envelope is <em>overtaken</em> if a later one of its unit arrived before it. The chart shows by how many sequence "
        "numbers; 0: it arrived in its turn."
    )
    measure = _Measure("sequence numbers by which it was overtaken", COUNTS, _count, _count_bin)
    return f"<p>{text}</p>{_histogram('overtaken', 'Overtaken envelopes', 'envelopes', measure, depth)}"


def _histogram(
    name: str,
    title: str,
    counted: str,
    measure: _Measure,
    distribution: Distribution,
    deadline: tuple[str, int] | None = None,
) -> str:
    spans = spans_of(distribution, measure.bounds, None if deadline is None else deadline[1])
    if not spans:
        return _NOTHING
    values = {
        "median": ("median", distribution.median),
        "percentile": ("99th percentile", distribution.percentile_99),
        "deadline": deadline or ("", None),
    }
    lines = [
        Line(kind, place_of(value, spans), f"{label}: {measure.value(value)}")
        for kind, (label, value) in values.items()
        if value is not None
    ]
    total = sum(each.count for each in spans)
    described = f"{total:,} {counted} by {measure.axis}; {'; '.join(each.label for each in lines)}."
    columns = [Column(measure.value(each.start), measure.bin(each), (each.count,)) for each in spans]
    end = "" if spans[-1].end is None else measure.value(spans[-1].end)
    rows = [(measure.bin(each), f"{each.count:,}", f"{each.count / total:.1%}") for each in spans]
    figures = table(f"{title}, in figures", (measure.axis, counted, "share"), rows)
    return _figure(Chart(name, title, described, counted, measure.axis, columns, (counted,), end, lines), figures)


def _figure(chart: Chart, figures: str) -> str:
    return (
        f"<figure>{columns_chart(chart)}<figcaption>{escape(chart.description)}</figcaption>"
        f'<details class="data"><summary>{escape(chart.title)}, in figures</summary>{figures}</details></figure>'
    )


def _count(value: int) -> str:
    return f"{value:,}"


def _count_bin(span: Span) -> str:
    if span.end is None:
        return f"{span.start:,} and more"
    return f"{span.start:,}" if span.start == span.end - 1 else f"{span.start:,} to {span.end - 1:,}"


def _duration_bin(span: Span) -> str:
    start = duration_words(span.start)
    return f"{start} and more" if span.end is None else f"{start} to less than {duration_words(span.end)}"


def _flows(flows: Sequence[FlowArrivals]) -> str:
    if not flows:
        return ""
    has_times = any(each.usual_ms is not None for each in flows)
    times = ("median time", "99.9th percentile, time") if has_times else ()
    names = ("flow", "envelopes", "overtaken", "share", "median, numbers", "99.9th percentile, numbers", *times)
    rows = [
        (
            foreign(each.flow),
            f"{each.arrivals:,}",
            f"{each.overtaken:,}",
            f"{each.overtaken / max(1, each.arrivals):.1%}",
            f"{each.usual_depth:,}",
            f"{each.highest_depth:,}",
            *((_time(each.usual_ms), _time(each.highest_ms)) if has_times else ()),
        )
        for each in flows
    ]
    text = "Medians and percentiles are those of the overtaken envelopes: by how many sequence numbers"
    text += ", and how long after the first later envelope they arrived." if has_times else "."
    return f"<h3>By flow</h3><p>{prose(text)}</p>" + table("Overtaken envelopes by flow", names, rows)


def _time(milliseconds: int | None) -> str:
    return "–" if milliseconds is None else duration_words(milliseconds)


def _statuses(summary: AuditSummary) -> str:
    counted, interval_ms = summary.statuses, summary.interval_ms
    if not counted:
        return _NOTHING
    totals: Counter[str] = Counter()
    for each in counted:
        totals[each.status] += each.count
    names = _series(totals)
    columns = _intervals(counted, names, interval_ms)
    length, total = duration_words(interval_ms), sum(totals.values())
    busiest = max(columns, key=lambda each: each.total)
    first, last = min(each.start for each in counted), max(each.start for each in counted) + interval_ms
    description = (
        f"{total:,} notifications by status, from {instant_words(first)} to {instant_words(last)}, a column per {length}. "
        f"Most in one: {busiest.total:,}, from {busiest.name}."
    )
    chart = Chart(
        "statuses",
        "Notifications by status over time",
        description,
        f"notifications per {length}",
        f"made at (UTC), from {instant_words(first)[:10]}",
        columns,
        [_status(name) for name in names],
    )
    rows = [(foreign(name), f"{count:,}", f"{count / total:.1%}") for name, count in totals.most_common(50)]
    return _figure(chart, table("Notifications by status, in figures", ("status", "notifications", "share"), rows))


def _series(totals: Counter[str]) -> list[str]:
    """Return the statuses by count. If there are more than colours, the last name stands for all further ones."""
    names = [name for name, _ in sorted(totals.items(), key=lambda each: (-each[1], each[0]))]
    return names if len(names) <= SERIES else [*names[: SERIES - 1], "others"]


def _intervals(counted: Sequence[StatusTime], names: Sequence[str], interval_ms: int) -> list[Column]:
    """Return a column for each interval, also for those in which nothing was made."""
    counts: Counter[tuple[Instant, str]] = Counter()
    for each in counted:
        counts[each.start, each.status if each.status in names else names[-1]] += each.count
    first, last = min(each.start for each in counted), max(each.start for each in counted)
    return [
        Column(clock_label(start, interval_ms), instant_words(start), tuple(counts[start, name] for name in names))
        for start in range(first, last + 1, interval_ms)
    ]


def _status(name: str) -> str:
    safe = printable(name)
    return safe if len(safe) <= _STATUS_LENGTH else f"{safe[:_STATUS_LENGTH]}…"
