"""The audit in figures: what was looked at, what was found, and what the page draws."""

from pathlib import Path

import msgspec

from pipeline.audit.finding import Finding


class Bin(msgspec.Struct, frozen=True):
    """So many values from this one to before the next bin's."""

    start: int
    count: int


class FlowLateness(msgspec.Struct, frozen=True):
    """How late the envelopes of a flow come behind later ones. `late` of `arrivals` did; depths in numbers, times in ms (None
    where nobody knows when records were written).
    """

    flow: str
    arrivals: int
    late: int
    usual_depth: int
    highest_depth: int
    usual_ms: int | None
    highest_ms: int | None


class StatusTime(msgspec.Struct, frozen=True):
    """So many notifications of a status in the interval that begins then."""

    status: str
    start: int
    count: int


class AuditSummary(msgspec.Struct, frozen=True):
    """`counts` has every deviation. `open` is what may still come: it waits, or its records were not settled yet.
    `not_compared` are notifications whose content nobody can know.

    `waited_ms` has no bins where nobody knows when records were written. `highest` ones are 99.9th percentiles.
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
    waited_ms: tuple[Bin, ...]
    waited_records: tuple[Bin, ...]
    depth: tuple[Bin, ...]
    flows: tuple[FlowLateness, ...]
    statuses: tuple[StatusTime, ...]
    interval_ms: int

    @property
    def is_good(self) -> bool:
        return not any(self.counts.values())


def write_summary(summary: AuditSummary, path: Path) -> None:
    path.write_bytes(as_json(summary))


def as_json(summary: AuditSummary) -> bytes:
    """For machines: `good` first."""
    fields = {"good": summary.is_good} | msgspec.structs.asdict(summary)
    return msgspec.json.format(msgspec.json.encode(fields)) + b"\n"
