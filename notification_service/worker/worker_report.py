"""What a worker's report says of its servers, its cycle, its partitions and its units. Pure: instants are handed in."""

from collections.abc import Mapping
from heapq import nlargest
from operator import itemgetter

import msgspec

from guardian.actor_gateway import UnitsReport
from guardian.calls import CallsReport
from guardian.cycle import Cycle
from guardian.metrics import HistogramReport, Metrics
from guardian.owned_partition import OwnedPartition
from guardian.ports import TransportStatus
from guardian.takeover import Untaken
from notification_service.status.report import (
    CallsStatus,
    PartitionStatus,
    ServerStatus,
    StatusReport,
    Units,
    UnitWait,
    UntakenPartition,
)
from resequencer.batch import UnitKey
from resequencer.clock import Instant, instant_text
from resequencer.record import Partition
from resequencer.storage_port import Waits

SERVERS = ("source", "storage", "output")
"""As a worker's state names them (`storage unavailable`)."""


class ServerStates:
    """Remembers the last state of each server between two reports, so an instant is late by the time between two at most."""

    def __init__(self) -> None:
        self._last: dict[str, ServerStatus] = {}

    def note(self, unavailable: Mapping[str, str | None], now: Instant, *, is_known: bool) -> Mapping[str, ServerStatus]:
        """Return the state of each server at `now`; `unavailable` has those that do not answer, with the reason.

        The others are available if that `is_known`: before the worker has begun, it has not asked all of them, and they are
        left out.
        """
        states = {}
        for name in SERVERS:
            is_available, before = name not in unavailable, self._last.get(name)
            if is_available and not is_known:
                continue
            since = before.since if before is not None and before.is_available == is_available else instant_text(now)
            states[name] = ServerStatus(is_available, since, unavailable.get(name))
        self._last = states
        return dict(states)


_SERVERS = 10
"""How many unavailable servers of handlers are named: those for which the most units wait."""

_LINGERING = 5
"""How many units are named whose calls continue after their time-out."""


def with_metrics(
    plain: StatusReport,
    cycle: Cycle,
    units_report: UnitsReport,
    standing: TransportStatus,
    overruns: int,
    calls: CallsReport | None,
    now: Instant,
) -> StatusReport:
    metrics, partitions = cycle.metrics, cycle.partitions
    counts = {
        **metrics.counts,
        "heals": partitions.heals,
        "ownership_lost": partitions.losses,
        "overruns": overruns,
        "timeouts": 0 if calls is None else calls.timeouts,
        "misplaced_records": standing.misplaced,
    }
    return msgspec.structs.replace(
        plain,
        units=Units(
            units_report.active,
            units_report.waiting,
            units_report.stashed,
            units_report.stashed_bytes,
            units_report.backlogged,
            units_report.held,
        ),
        oldest_waits=tuple(_unit_wait(key, waits) for key, waits in units_report.oldest),
        partitions=tuple(_partition_status(owned, plain.slot, cycle, now) for owned in partitions.owned.values()),
        counts=counts,
        notifications=dict(metrics.notifications),
        dead_letters=dict(metrics.dead_letters),
        longest_wait_ms=metrics.longest_wait_ms,
        untaken=tuple(
            _untaken_partition(name, each, plain.slot) for name, each in partitions.postponed_takeovers.untaken.items()
        ),
        last_cycle=metrics.last_cycle,
        unavailable=dict(nlargest(_SERVERS, units_report.unavailable.items(), key=itemgetter(1))),
        notes=(*standing.notes, *(() if cycle.orders_problem is None else (cycle.orders_problem,)), *_about_keys(metrics)),
        histograms=metrics.histograms.report() | _durations(calls),
        orders=dict(metrics.orders),
        calls=None if calls is None else _calls(calls),
    )


def _calls(calls: CallsReport) -> CallsStatus:
    longest = None if calls.longest is None else calls.longest.unit
    lingering = tuple(each.unit for each in calls.lingering_units[:_LINGERING])
    return CallsStatus(calls.under_way, calls.waiting, calls.lingering, longest, calls.longest_ms, lingering)


def _durations(calls: CallsReport | None) -> dict[str, HistogramReport]:
    return {} if calls is None or calls.durations is None else {"call": calls.durations}


def _about_keys(metrics: Metrics) -> tuple[str, ...]:
    if not metrics.counts["several_keys"]:
        return ()
    problem = "there are units whose records have different keys (several_keys): their events may be in several partitions"
    return (f"{problem}, and are in order within each of them alone. Let producers use the unit as the key",)


def _unit_wait(key: UnitKey, waits: Waits) -> UnitWait:
    since, until = instant_text(waits.since), instant_text(waits.wakes_at)
    return UnitWait(key.unit, str(key.partition), waits.shown_waits_for, waits.kind.value, since, until, waits.stashed)


def _partition_status(owned: OwnedPartition, slot: int, cycle: Cycle, now: Instant) -> PartitionStatus:
    positions, head, pause = owned.positions, owned.positions.head, owned.orders.present_pause
    metrics, is_known = cycle.metrics, cycle.knows_ends(now)
    return PartitionStatus(
        str(owned.partition),
        owned.read_to,
        positions.acknowledged,
        len(owned.unpublished),
        head.offset if head else None,
        slot,
        _behind(metrics.log_ends, owned) if is_known else None,
        _behind(metrics.readable_ends, owned) if is_known else None,
        owned.find_lag_ms(now, is_end_known=is_known),
        instant_text(head.since) if head else None,
        positions.first_pinned,
        *((pause.by, instant_text(pause.since)) if pause is not None else ()),
    )


def _behind(ends: Mapping[Partition, int], owned: OwnedPartition) -> int | None:
    end = ends.get(owned.partition)
    return None if end is None else max(0, end - owned.read_to)


def _untaken_partition(partition: Partition, untaken: Untaken, slot: int) -> UntakenPartition:
    return UntakenPartition(str(partition), untaken.what, untaken.reason, instant_text(untaken.next_at), slot)
