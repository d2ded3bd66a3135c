"""Pieces of the page: foreign texts, icons, tables and facts. Everything is escaped here; the pieces are well-formed XML."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from html import escape
from itertools import pairwise

from resequencer.clock import Instant
from resequencer.printable import printable

_LONGEST = 160
_END = 24


class State(StrEnum):
    """What a notice says. It has a colour and an icon; the text says the same."""

    OK = "ok"
    ATTENTION = "attention"
    PROBLEM = "problem"


_ICONS = {
    State.OK: '<circle cx="12" cy="12" r="10"/><path d="M7.5 12.5l3 3 6-6.5"/>',
    State.ATTENTION: '<path d="M12 3L22 20.5H2Z"/><path d="M12 9.5v5M12 17.2v.6"/>',
    State.PROBLEM: '<path d="M8 2h8l6 6v8l-6 6H8l-6-6V8Z"/><path d="M8.5 8.5l7 7M15.5 8.5l-7 7"/>',
}


def icon(state: State) -> str:
    """Return the icon; screen readers skip it, because a text says the same."""
    return f'<svg class="icon" viewBox="0 0 24 24" aria-hidden="true">{_ICONS[state]}</svg>'


def notice(state: State, text: str) -> str:
    """Return a paragraph with the state's icon; `text` is markup."""
    return f'<p class="notice {state}">{icon(state)}<span>{text}</span></p>'


def foreign(text: str, longest: int = _LONGEST) -> str:
    """Return a text of unknown origin, harmless in any form, of at most `longest` characters.

    Characters that are not printable (controls, changes of direction, zero-width ones) are shown as escapes. The element is
    isolated from the direction of the text around it, clips what leaves its line, and breaks anywhere. The middle of a long text
    is omitted, and its length stated.
    """
    safe = printable(text)
    if len(safe) <= longest:
        return f'<bdi class="foreign" dir="ltr">{escape(safe)}</bdi>'
    shown = f"{safe[: longest - _END]} … {safe[-_END:]}"
    return f'<bdi class="foreign" dir="ltr">{escape(shown)}</bdi> <span class="soft">({len(text):,} characters)</span>'


def prose(text: str) -> str:
    """Return our own sentence; what stands between backticks is code."""
    return "".join(f"<code>{part}</code>" if at % 2 else part for at, part in enumerate(escape(text).split("`")))


def section(name: str, title: str, content: str) -> str:
    """Return a section with a heading; `name` is its id."""
    return f'<section aria-labelledby="{name}"><h2 id="{name}">{escape(title)}</h2>{content}</section>\n'


def facts(pairs: Iterable[tuple[str, str]], kind: str) -> str:
    """Return a list of names and values; the values are markup."""
    items = "".join(f"<div><dt>{escape(name)}</dt><dd>{value}</dd></div>" for name, value in pairs)
    return f'<dl class="{kind}">{items}</dl>'


def table(title: str, names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table that scrolls in its own box. The first column names the row; the others are numbers. Cells are markup."""
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    body = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in others)}</tr>' for first, *others in rows
    )
    return (
        f'<div class="wide" role="region" tabindex="0" aria-label="{escape(title)}">'
        f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))


def instant_words(at: Instant) -> str:
    """`2026-03-28 23:33:57 UTC`."""
    return f"{_moment(at):%Y-%m-%d %H:%M:%S} UTC"


def clock_label(at: Instant, interval_ms: int) -> str:
    """Return as much of the instant as distinguishes the intervals of an axis."""
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
            remainder = milliseconds % length // part
            return f"{milliseconds // length:,} {unit}" + (f" {remainder} {smaller}" if remainder else "")
    return f"{milliseconds // 1_000} s"


def _moment(at: Instant) -> datetime:
    return datetime.fromtimestamp(at / 1_000, UTC)
