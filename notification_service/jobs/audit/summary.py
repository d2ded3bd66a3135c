"""The audit's figures: what was checked, what was found, and the data of the page's charts."""

from pathlib import Path

import msgspec

from notification_service.jobs.audit.distribution import Distribution
from notification_service.jobs.audit.finding import Finding
from notification_service.judgement.order_check import OrderCounts
from resequencer.clock import Instant


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
    `first_made_at` to `last_made_at`; None if none tells. `lookups` holds the versions that most of them name.
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
