"""The audit's result as one self-contained HTML page."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path

from domain.clock import Instant
from pipeline.audit.chart import Column, columns_chart, legend
from pipeline.audit.finding import Finding
from pipeline.audit.summary import AuditSummary, Bin, FlowLateness, StatusTime

_NOTHING = '<p class="none">There is nothing to draw.</p>'
_STYLE = """
:root { --ink: #1c2430; --soft: #66707f; --line: #d9dee6; --ground: #fff; --card: #f6f7f9; --good: #1a7f4b; --bad: #b3261e;
  color-scheme: light dark }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #99a3b3; --line: #39424f; --ground: #14181e;
  --card: #1c222b; --good: #56c08a; --bad: #ff8a80 } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground); margin: 0 auto; padding: 2rem 1rem;
  max-width: 60rem }
h1 { font-size: 1.5rem; margin: 0 } h2 { font-size: 1.1rem; margin: 2.2rem 0 .2rem }
p { margin: .2rem 0 .8rem } .soft, .none { color: var(--soft) }
.verdict { font-size: 1.15rem; font-weight: 600 } .good { color: var(--good) } .bad { color: var(--bad) }
.figures { display: flex; flex-wrap: wrap; gap: .6rem; margin: 1rem 0 } .figures div { background: var(--card);
  padding: .5rem .9rem; border-radius: .4rem }
.figures b { display: block; font-size: 1.25rem; font-variant-numeric: tabular-nums }
.wide { overflow-x: auto } table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top }
.right { text-align: right }
td.id { overflow-wrap: anywhere; min-width: 11rem }
svg { width: 100%; min-width: 36rem; height: auto; display: block }
svg text { font-size: 11px; fill: var(--soft) } svg line { stroke: var(--line) }
text.label, text.axis { text-anchor: middle } text.value { text-anchor: end }
.legend span { display: inline-block; margin-right: 1rem } .legend i { display: inline-block; width: .8em; height: .8em;
  margin-right: .35em; border-radius: .15em }
"""
_PALETTE = (
    *("#3b6fb6", "#e08a1e", "#3a9a6b", "#c2473d", "#8667b8", "#2aa3b8"),
    *("#b8932a", "#d0659c", "#6d7f2f", "#8a5a44", "#5a6b7f", "#a0a8b4"),
)


def write_page(summary: AuditSummary, name: str, path: Path) -> None:
    """Write the page. `name` describes what was audited."""
    path.write_text(render_page(summary, name), encoding="utf-8")


def render_page(summary: AuditSummary, name: str) -> str:
    colors = "".join(f".c{at} {{ fill: {color}; background: {color} }}\n" for at, color in enumerate(_PALETTE))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Audit of {escape(name)}</title><style>{_STYLE}{colors}</style></head><body>\n"
        f"<h1>Audit</h1><p class='soft'>{escape(name)}</p>{_verdict(summary)}{_figures(summary)}{_findings(summary)}"
        f"{_charts(summary)}\n</body></html>\n"
    )


def _verdict(summary: AuditSummary) -> str:
    if summary.is_good:
        return '<p class="verdict good">Nothing is lost, doubled or out of order; the content is as expected.</p>'
    count = sum(summary.counts.values())
    return f'<p class="verdict bad">{count:,} deviation{"" if count == 1 else "s"}.</p>'


def _figures(summary: AuditSummary) -> str:
    figures = {
        "units": summary.units,
        "envelopes": summary.arrivals,
        "notifications": summary.notifications,
        "marked incomplete": summary.incomplete,
        "marked late": summary.late,
        "open": summary.open,
    }
    if summary.not_compared:
        figures["content not compared"] = summary.not_compared
    return f'<div class="figures">{"".join(f"<div><b>{count:,}</b>{name}</div>" for name, count in figures.items())}</div>'


def _findings(summary: AuditSummary) -> str:
    if summary.is_good:
        return ""
    counts = _table(("deviation", "found"), ((name, f"{count:,}") for name, count in summary.counts.items() if count), (1,))
    shown = len(summary.examples)
    told = f"The first {shown}; the table beside this page has all of them." if shown < sum(summary.counts.values()) else ""
    examples = _table(("deviation", "unit", "position", "what"), map(_told, summary.examples))
    return f"<h2>What deviates</h2>{counts}<h2>Findings</h2><p class='soft'>{told}</p>{examples}"


def _told(found: Finding) -> tuple[str, str, str, str]:
    position = "" if found.offset is None else f"{found.partition}@{found.offset}"
    return found.deviation.value, found.unit or "none", position, found.what


def _charts(summary: AuditSummary) -> str:
    waited = (
        _section(
            "Waiting times",
            "How long after the record of their envelope was written the notifications were made.",
            _histogram(summary.waited_ms, "notifications", "milliseconds"),
        )
        if summary.waited_ms
        else _section(
            "Waiting",
            "How many envelopes of their unit came while the notifications waited. "
            "Files do not record when a record was written.",
            _histogram(summary.waited_records, "notifications", "envelopes of the unit that came meanwhile"),
        )
    )
    depth = _histogram(summary.depth, "envelopes", "numbers")
    return (
        waited
        + _section("Disorder", "How many numbers behind a later one of their unit the envelopes came; 0: in their turn.", depth)
        + _section("Lateness by flow", "Envelopes that came behind a later one of their unit.", _flows(summary.flows))
        + _section("Notifications per status over time", _span(summary), _statuses(summary.statuses, summary.interval_ms))
    )


def _section(title: str, said: str, drawn: str) -> str:
    return f"<h2>{escape(title)}</h2><p class='soft'>{escape(said)}</p>{drawn}"


def _histogram(bins: Sequence[Bin], counted: str, axis: str) -> str:
    if not bins:
        return _NOTHING
    ends = [*(each.start - 1 for each in bins[1:]), None]
    columns = [Column(_range(each.start, end), (each.count,)) for each, end in zip(bins, ends, strict=True)]
    return f'<div class="wide">{columns_chart(columns, (counted,), axis)}</div>'


def _range(start: int, end: int | None) -> str:
    if end is None:
        return f"{start:,}+" if start > 2 else f"{start:,}"
    return f"{start:,}" if start == end else f"{start:,}–{end:,}"


def _flows(flows: Sequence[FlowLateness]) -> str:
    has_times = any(each.usual_ms is not None for each in flows)
    names = (
        "flow",
        "envelopes",
        "late",
        "share",
        "usual depth",
        "99.9 % depth",
        *(("usual ms", "99.9 % ms") if has_times else ()),
    )
    rows = [
        (
            each.flow,
            f"{each.arrivals:,}",
            f"{each.late:,}",
            f"{each.late / max(1, each.arrivals):.1%}",
            f"{each.usual_depth:,}",
            f"{each.highest_depth:,}",
            *((_number(each.usual_ms), _number(each.highest_ms)) if has_times else ()),
        )
        for each in flows
    ]
    return _table(names, rows, tuple(range(1, len(names))))


def _statuses(counted: Sequence[StatusTime], interval_ms: int) -> str:
    if not counted:
        return _NOTHING
    names = sorted({each.status for each in counted})
    counts = {(each.start, each.status): each.count for each in counted}
    first, last = min(each.start for each in counted), max(each.start for each in counted)
    starts = range(first, last + 1, interval_ms)
    columns = [Column(_clock(start, interval_ms), tuple(counts.get((start, name), 0) for name in names)) for start in starts]
    return f'<div class="wide">{columns_chart(columns, names, "made at (UTC)")}</div>{legend(names)}'


def _span(summary: AuditSummary) -> str:
    if not summary.statuses:
        return ""
    starts = [each.start for each in summary.statuses]
    return (
        f"From {_instant(min(starts))} to {_instant(max(starts) + summary.interval_ms)}, "
        f"one column per {_duration(summary.interval_ms)}."
    )


def _table(names: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> str:
    def cells(row: Sequence[str], tag: str) -> str:
        kinds = ("right" if at in right else "id" for at in range(len(row)))
        return "".join(f'<{tag} class="{kind}">{escape(text)}</{tag}>' for text, kind in zip(row, kinds, strict=True))

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{cells(names, "th")}</tr>{body}</table></div>'


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _clock(at: Instant, interval_ms: int) -> str:
    moment = datetime.fromtimestamp(at / 1_000, UTC)
    if interval_ms < 1_000:
        return f"{moment:%H:%M:%S}.{at % 1_000 // 100}"
    return f"{moment:%H:%M:%S}" if interval_ms < 60_000 else f"{moment:%d %H:%M}"


def _duration(milliseconds: int) -> str:
    """Return one of the intervals as text."""
    for unit, length in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if milliseconds % length == 0:
            return f"{milliseconds // length:,} {unit}"
    return f"{milliseconds:,} ms"


def _instant(at: Instant) -> str:
    return f"{datetime.fromtimestamp(at / 1_000, UTC):%Y-%m-%d %H:%M:%S}"
