"""Finds units that wait beyond their deadline while the service was running, as after a release of which no output is left."""

from collections.abc import Iterable, Iterator

from notification_service.jobs.audit.finding import Deviation
from notification_service.jobs.audit.row_audit import FINDING, Told
from notification_service.jobs.audit.rules import AuditSettings
from notification_service.jobs.audit.timing import Timing


def overdue(waiting: Iterable[Told], timing: Timing, settings: AuditSettings) -> Iterator[Told]:
    """Yield a finding for each. Only partitions read to their end count: what waits for a backlog is not overdue.

    A deadline rests while its partition is paused.
    """
    bound_ms = settings.resequencer.longest_deadline_ms + settings.grace_ms
    for each in waiting:
        assert each.partition is not None
        assert each.offset is not None
        if settings.settled.get(each.partition, 0) < timing.lengths.get(each.partition, 0):
            continue
        paused_ms = timing.paused.get(each.partition, 0)
        if paused_ms is None:
            continue
        waited_ms = timing.find_waited_ms(each.partition, each.offset)
        if waited_ms is not None and waited_ms > bound_ms + paused_ms + (each.waited_ms or 0):
            what = f"it has waited for {each.what} for at least {waited_ms / 1_000:,.0f} s, and no output shows its release"
            yield Told(FINDING, each.unit, each.partition, each.offset, Deviation.OVERDUE.value, what)
