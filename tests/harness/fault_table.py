"""The results of fault campaigns: a table with one row per campaign, printed at the end of a test run that had any."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

PROPERTY = "fault"
"""The name of the property that carries the rows of a test, because tests run in several processes."""


class Row(NamedTuple):
    """`recovery_seconds` is the longest time from the end of a fault until all records were read that were there by then."""

    fault: str
    times: int
    storage: str
    envelopes: int
    notifications: int
    lost: int
    doubled: int
    out_of_order: int
    otherwise_wrong: int
    possible_duplicates: int
    recovery_seconds: float
    seed: int


_HEADINGS = (
    "fault",
    "times",
    "storage",
    "envelopes",
    "notifications",
    "lost",
    "doubled",
    "out of order",
    "else wrong",
    "possible-duplicate",
    "longest to recover",
    "FAULT_SEED",
)
_TEXTS = {0, 2}


def rows_of(reports: Iterable[Any]) -> list[Row]:
    """Return the rows of this run's tests, in the order in which the tests ended."""
    calls = [each for each in reports if getattr(each, "when", None) == "call"]
    return [Row(*value) for each in calls for name, value in each.user_properties if name == PROPERTY]


def render(rows: Sequence[Row]) -> list[str]:
    """Return a table in Markdown, aligned for a terminal, too."""
    cells = [_HEADINGS, *(_cells(each) for each in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(_HEADINGS))]
    lines = [_line(row, widths) for row in cells]
    rule = ["-" * width if column in _TEXTS else "-" * (width - 1) + ":" for column, width in enumerate(widths)]
    return [lines[0], f"| {' | '.join(rule)} |", *lines[1:]]


def _cells(row: Row) -> tuple[str, ...]:
    return tuple(f"{each:.1f} s" if isinstance(each, float) else str(each) for each in row)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    padded = [text.ljust(widths[at]) if at in _TEXTS else text.rjust(widths[at]) for at, text in enumerate(row)]
    return f"| {' | '.join(padded)} |"
