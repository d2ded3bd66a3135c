"""What an audit audited and found: the head of its page, its figures, and the data of the page's charts."""

from pathlib import Path

import msgspec

from notification_service.jobs.audit.finding import Finding
from notification_service.judgement.order_check import OrderCounts
from resequencer.clock import Instant

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


class AuditSubject(msgspec.Struct, frozen=True):
    """`service` is its run directory. `input`, `notifications` and `dead_letters` name topics, or directories and files.

    `archive` is the place of archived topics that were read instead of the topics. `group` is None for files. A stashed envelope
    waits for `shortest_deadline_ms` to `longest_deadline_ms`; they differ only if
    deadlines are learned. `reports` names where the group reports are, None without aggregation. `has_lookups`: notifications are
    made, with lookups; otherwise records leave as they came.
    """

    service: str
    input: str
    notifications: str
    dead_letters: str
    archive: str | None
    group: str | None
    strategy: str
    shortest_deadline_ms: int
    longest_deadline_ms: int
    began_at: Instant
    took_ms: int
    reports: str | None = None
    has_lookups: bool = True


class FlowArrivals(msgspec.Struct, frozen=True):
    """The arrivals of a flow. Before `overtaken` of them, a later envelope of their unit had arrived.

    Depths say by how many numbers; times by how many ms, None if it is unknown when records were written. The `usual` values are
    medians of the overtaken ones, the `highest` ones 99.9th percentiles.
    """

    flow: str
    arrivals: int
    overtaken: int
    usual_depth: int
    highest_depth: int
    usual_ms: int | None
    highest_ms: int | None


class StatusTime(msgspec.Struct, frozen=True):
    """The number of notifications of a status in the interval that begins at `start`."""

    status: str
    start: int
    count: int


class UsedLookups(msgspec.Struct, frozen=True):
    """The number of notifications that name this version of the lookups; None if they name none."""

    version: str | None
    notifications: int


class GroupCounts(msgspec.Struct, frozen=True):
    """The groups of payments, and what has become of them; of `groups`, each is in one of the four counts that follow.

    `open` ones have no report, and `complete`, `incomplete` and `closed` are by their last one. `payments` belong to them and
    `reports` were published. `awaited` reports may still come. `not_judged` groups have facts in several partitions.
    """

    groups: int = 0
    open: int = 0
    complete: int = 0
    incomplete: int = 0
    closed: int = 0
    payments: int = 0
    reports: int = 0
    awaited: int = 0
    not_judged: int = 0


class AuditSummary(msgspec.Struct, frozen=True):
    """`counts` has an entry for every deviation.

    `open` counts notifications that may still come: their envelopes wait, or their records were not yet settled. `not_compared`
    counts notifications whose content cannot be known. `examples` holds the first findings of each deviation, the gravest
    deviation first. `waited_ms` has no bins if it is unknown when records were written. The notifications were made from
    `first_made_at` to `last_made_at`; None if none says when. `lookups` holds the versions that are named most often.
    """

    units: int
    arrivals: int
    notifications: int
    incomplete: int
    late: int
    open: int
    not_compared: int
    counts: dict[str, int]
    examples: tuple[Finding, ...]
    waited_ms: Distribution
    waited_records: Distribution
    depth: Distribution
    flows: tuple[FlowArrivals, ...]
    statuses: tuple[StatusTime, ...]
    interval_ms: int
    first_made_at: Instant | None = None
    last_made_at: Instant | None = None
    lookups: tuple[UsedLookups, ...] = ()
    orders: OrderCounts = OrderCounts()
    groups: GroupCounts = GroupCounts()

    @property
    def is_good(self) -> bool:
        return not any(self.counts.values())


def write_summary(summary: AuditSummary, path: Path) -> None:
    path.write_bytes(as_json(summary))


def as_json(summary: AuditSummary) -> bytes:
    """Return the summary as JSON for programs, with `good` first."""
    fields = {"good": summary.is_good} | msgspec.structs.asdict(summary)
    return msgspec.json.format(msgspec.json.encode(fields)) + b"\n"
