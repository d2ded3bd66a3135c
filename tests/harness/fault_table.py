"""The results of fault campaigns: tables with one row per campaign, printed at the end of a test run that had any."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias


class Row(NamedTuple):
    """A campaign on the main job.

    `recovery_seconds` is the longest time from the end of a fault until all records were read that were there by then.
    """

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


class DeliveryRow(NamedTuple):
    """A campaign on delivery. `repeated` are calls under the key of a notification that the receiver had taken already."""

    fault: str
    times: int
    ledger: str
    notifications: int
    processed: int
    rejected: int
    failed: int
    lost: int
    doubled: int
    out_of_order: int
    repeated: int
    suspensions: int
    back_offs: int
    refused_results: int
    events: int
    seed: int


class GroupRow(NamedTuple):
    """A campaign on the payments of messages. `complete` are the groups that must have a report, by a count of their facts.

    `lost` and `doubled` are reports, `wrong counts` those that say something else than the facts; `wrong values` are values of
    groups and payments that differ from a recomputation. `otherwise_wrong` is what the check of the notifications found.
    """

    fault: str
    times: int
    transport: str
    facts: int
    groups: int
    complete: int
    reports: int
    lost: int
    doubled: int
    wrong_counts: int
    wrong_values: int
    otherwise_wrong: int
    recovery_seconds: float
    seed: int


class RegionRow(NamedTuple):
    """A campaign on a region. The five numbers after `sinks` count the strikes of each kind.

    `notifications` are those of all sinks; `came_again` are messages of sinks that keep no marker.
    """

    source: str
    sinks: str
    killed_workers: int
    paused_workers: int
    killed_brokers: int
    killed_storages: int
    resets: int
    envelopes: int
    notifications: int
    lost: int
    doubled: int
    out_of_order: int
    otherwise_wrong: int
    came_again: int
    recovery_seconds: float
    seed: int


class ClockRow(NamedTuple):
    """A part of a service whose clock was wrong for some seconds.

    `early` is what a deadline let out that had not come. `late_seconds` is how long after the clock was right again all was there
    that had been given by then.
    """

    part: str
    transport: str
    days_ahead: int
    given: int
    lost: int
    doubled: int
    out_of_order: int
    early: int
    otherwise_wrong: int
    late_seconds: float

    @property
    def bad(self) -> int:
        return self.lost + self.doubled + self.out_of_order + self.early + self.otherwise_wrong


AnyRow: TypeAlias = Row | DeliveryRow | GroupRow | RegionRow | ClockRow
KINDS: dict[str, type[AnyRow]] = {
    "faults": Row,
    "faults of delivery": DeliveryRow,
    "faults of groups": GroupRow,
    "faults of regions": RegionRow,
    "wrong clock": ClockRow,
}
"""By the name of the property that carries the rows of a test, because tests run in several processes."""

_RENAMED = {"recovery_seconds": "longest to recover", "late_seconds": "late", "seed": "SEARCH_SEED"}


def as_property(row: AnyRow) -> tuple[str, object]:
    """Return name and value for `record_property`: a list can be passed between processes; a row cannot."""
    return next(name for name, kind in KINDS.items() if isinstance(row, kind)), list(row)


def tables_of(reports: Iterable[Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield a name and the lines of a table for each kind of row that this run's tests have, in the order of their ends."""
    calls = [each for each in reports if getattr(each, "when", None) == "call"]
    properties = [each for call in calls for each in call.user_properties]
    for name, kind in KINDS.items():
        if rows := [kind(*value) for called, value in properties if called == name]:
            yield name, render(rows)


def render(rows: Sequence[AnyRow]) -> list[str]:
    """Return a table in Markdown, aligned for a terminal, too."""
    names = rows[0]._fields
    cells = [[_RENAMED.get(each, each.replace("_", " ")) for each in names], *([_cell(each) for each in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(names))]
    is_text = [isinstance(each, str) for each in rows[0]]
    rule = ["-" * width if text else "-" * (width - 1) + ":" for width, text in zip(widths, is_text, strict=True)]
    lines = [_line(row, widths, is_text) for row in cells]
    return [lines[0], f"| {' | '.join(rule)} |", *lines[1:]]


def _cell(value: object) -> str:
    return f"{value:.1f} s" if isinstance(value, float) else str(value)


def _line(row: Sequence[str], widths: Sequence[int], is_text: Sequence[bool]) -> str:
    padded = [
        text.ljust(width) if is_left else text.rjust(width) for text, width, is_left in zip(row, widths, is_text, strict=True)
    ]
    return f"| {' | '.join(padded)} |"
