"""The audit's figures: what was checked, what was found, and the data of the page's charts."""

from pathlib import Path

import msgspec

from pipeline.audit.finding import Finding


class Bin(msgspec.Struct, frozen=True):
    """The number of values from `start` to before the next bin's start."""

    start: int
    count: int


class FlowLateness(msgspec.Struct, frozen=True):
    """How late the envelopes of a flow came behind later ones. `late` of `arrivals` did.

    Depths count numbers; times are in ms, None if it is unknown when records were written. The `usual` values are medians, the
    `highest` ones 99.9th percentiles.
    """

    flow: str
    arrivals: int
    late: int
    usual_depth: int
    highest_depth: int
    usual_ms: int | None
    highest_ms: int | None


class StatusTime(msgspec.Struct, frozen=True):
    """The number of notifications of a status in the interval that begins at `start`."""

    status: str
    start: int
    count: int


class AuditSummary(msgspec.Struct, frozen=True):
    """`counts` has an entry for every deviation.

    `open` counts notifications that may still come: their envelopes wait, or their records were not yet settled. `not_compared`
    counts notifications whose content cannot be known. `waited_ms` has no bins if it is unknown when records were written.
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
    """Return the summary as JSON for programs, with `good` first."""
    fields = {"good": summary.is_good} | msgspec.structs.asdict(summary)
    return msgspec.json.format(msgspec.json.encode(fields)) + b"\n"
