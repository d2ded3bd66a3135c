"""Combines the reports of all workers of a service."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from guardian.metrics import HistogramReport, sum_of
from notification_service.status.file import SideFile, SideReport, StatusFile
from notification_service.status.report import (
    CallsStatus,
    Identity,
    PartitionStatus,
    ServerStatus,
    State,
    StatusReport,
    Units,
    report,
)
from resequencer.clock import Instant, instant_of
from resequencer.record import Partition

NOT_RUNNING, STALE = "not running", "stale"
"""A worker reports twice a second; a report this old says that it hangs or cannot write."""
_BY_URGENCY = (
    STALE,
    State.FAILED,
    State.SOURCE_UNAVAILABLE,
    State.STORAGE_UNAVAILABLE,
    State.OUTPUT_UNAVAILABLE,
    State.STARTING,
    State.RESETTING,
    State.HEALING,
    State.DRAINING,
    State.STOPPED,
    State.READY,
    NOT_RUNNING,
)
"""A service is in the first of these states that any of its workers is in, so it is ready only if all are."""
_OLDEST = 10
_FEWEST_DEAD_LETTERS = 10
"""So few dead letters are no pattern."""


class ServiceReport(msgspec.Struct, frozen=True):
    """`workers` by slot, each with its present state; `whole` combines all reports, with counts and units added up."""

    state: str
    whole: StatusReport
    workers: tuple[tuple[str, StatusReport], ...]


def sum_of_lags(lags: Iterable[int | None]) -> int | None:
    """Return the lag of all partitions. It is not known if there is none, or if that of one is not known."""
    found = list(lags)
    known = [each for each in found if each is not None]
    return sum(known) if found and len(known) == len(found) else None


def find_reports(run_directory: Path) -> tuple[StatusReport, ...]:
    """Return the last report of each worker of the service that ran here last, by slot; empty if none can be read."""
    first = StatusFile(run_directory).find()
    if first is None:
        return ()
    return (first, *(_find_beside(run_directory, slot, first) for slot in range(1, first.worker_count)))


def service_report(reports: Sequence[StatusReport], now: Instant, *, is_running: bool) -> ServiceReport:
    """Combine at least one report."""
    states = [state_of(each, now, is_running=is_running) for each in reports]
    reports = [_without_lag(each) if state == STALE else each for state, each in zip(states, reports, strict=True)]
    state = min(states, key=_BY_URGENCY.index)
    whole = _whole(reports, _first_reason(state, states, reports))
    if (note := _find_dead_letters_note(whole)) is not None:
        whole = msgspec.structs.replace(whole, notes=(*whole.notes, note))
    return ServiceReport(state, whole, tuple(zip(states, reports, strict=True)))


def state_of(report: StatusReport | None, now: Instant, *, is_running: bool) -> str:
    """Return the state of a worker whose last report this is; None if the worker has not reported yet."""
    if not is_running:
        return NOT_RUNNING
    if report is None:
        return State.STARTING
    if abs(now - instant_of(report.reported_at)) > report.stale_after_ms:
        return STALE
    return report.state


def _without_lag(stale: StatusReport) -> StatusReport:
    """Remove the lag of a worker that no longer reports, because new records arrive meanwhile."""
    unknown = {"lag": None, "lag_to_stable_end": None, "lag_ms": None}
    partitions = tuple(msgspec.structs.replace(each, **unknown) for each in stale.partitions)
    return msgspec.structs.replace(stale, partitions=partitions)


def _find_beside(run_directory: Path, slot: int, first: StatusReport) -> StatusReport:
    """Return the report of this slot. A report that an earlier service left is replaced by one in state STARTING."""
    found = StatusFile(run_directory, slot).find()
    if found is not None and found.process_id == first.process_id:
        return found
    started_at = instant_of(first.started_at)
    ours = Identity(first.process_id, first.configuration, started_at, slot=slot, worker_count=first.worker_count)
    return report(ours, State.STARTING, None, instant_of(first.reported_at))


def _first_reason(state: str, states: Iterable[str], reports: Iterable[StatusReport]) -> str | None:
    """Return the reason of a worker in the service's state; if that is NOT_RUNNING, of the worker that reported first."""
    found = [each for its, each in zip(states, reports, strict=True) if its == state and each.reason]
    if not found:
        return None
    first = min(found, key=lambda each: (each.reported_at if state == NOT_RUNNING else "", each.slot))
    is_named = first.worker_count == 1 or (first.reason or "").startswith(f"worker {first.slot} ")
    return first.reason if is_named else f"worker {first.slot}: {first.reason}"


def _newest_exit(reports: Sequence[StatusReport]) -> str | None:
    """Return which worker ended last, and how. The text ends with the instant."""
    ended = [each for each in reports if each.last_exit]
    newest = max(ended, key=lambda each: (each.last_exit or "").rpartition(" at ")[2], default=None)
    return None if newest is None else f"worker {newest.slot} {newest.last_exit}"


def _whole(reports: Sequence[StatusReport], reason: str | None) -> StatusReport:
    """Combine the reports; the instant is that of the oldest."""
    if len(reports) == 1:
        return reports[0]
    waits = sorted((each for of_one in reports for each in of_one.oldest_waits), key=lambda each: each.since)
    return msgspec.structs.replace(
        reports[0],
        reason=reason,
        reported_at=min(each.reported_at for each in reports),
        units=Units(*_sums(msgspec.structs.astuple(each.units) for each in reports)),
        oldest_waits=tuple(waits[:_OLDEST]),
        partitions=_partitions(reports),
        counts=_added(reports, lambda each: each.counts),
        notifications=_added(reports, lambda each: each.notifications),
        dead_letters=_added(reports, lambda each: each.dead_letters),
        longest_wait_ms=max(each.longest_wait_ms for each in reports),
        restarts=sum(each.restarts for each in reports),
        last_exit=_newest_exit(reports),
        untaken=tuple(each for of_one in reports for each in of_one.untaken),
        last_cycle=None,
        lookups_version=", ".join(sorted({each.lookups_version for each in reports if each.lookups_version})) or None,
        unavailable=_added(reports, lambda each: each.unavailable),
        deadlines="; ".join(dict.fromkeys(each.deadlines for each in reports if each.deadlines)) or None,
        notes=tuple(dict.fromkeys(note for each in reports for note in each.notes)),
        worker_process_id=None,
        restart_causes=_added(reports, lambda each: each.restart_causes),
        servers=_servers(reports),
        histograms=_histograms(reports),
        region=None,
        calls=_calls([each.calls for each in reports if each.calls is not None]),
        lookups_created_at=min((each.lookups_created_at for each in reports if each.lookups_created_at), default=None),
    )


def _find_dead_letters_note(whole: StatusReport) -> str | None:
    """Return a note if more envelopes became dead letters than were handled, as with a mapping that fits no record."""
    by_reason, dead = whole.dead_letters, sum(whole.dead_letters.values())
    handled = whole.counts.get("handled", 0)
    if dead <= max(handled, _FEWEST_DEAD_LETTERS - 1):
        return None
    reason = max(by_reason, key=by_reason.__getitem__)
    of_all = f"{dead} of {handled + dead}, {by_reason[reason]} of them {reason}"
    note = f"more than half of the records became dead letters since the start: {of_all}"
    return f"{note}. `resequencer dead-letters list` shows the errors"


def _servers(reports: Iterable[StatusReport]) -> dict[str, ServerStatus]:
    """A server that one worker cannot reach is not available, since it was so first."""
    by_urgency = sorted(
        (item for each in reports for item in each.servers.items()), key=lambda item: (item[1].is_available, item[1].since)
    )
    return dict(reversed(by_urgency))


def _histograms(reports: Iterable[StatusReport]) -> dict[str, HistogramReport]:
    by_name: defaultdict[str, list[HistogramReport]] = defaultdict(list)
    for of_one in reports:
        for name, each in of_one.histograms.items():
            by_name[name].append(each)
    return {name: sum_of(found) for name, found in by_name.items()}


def _calls(calls: Sequence[CallsStatus]) -> CallsStatus | None:
    if not calls:
        return None
    longest = max(calls, key=lambda each: each.longest_ms)
    under_way, waiting, lingering = _sums((each.under_way, each.waiting, each.lingering) for each in calls)
    named = tuple(name for each in calls for name in each.lingering_units)[:_OLDEST]
    return CallsStatus(under_way, waiting, lingering, longest.longest, longest.longest_ms, named)


def _partitions(reports: Iterable[StatusReport]) -> tuple[PartitionStatus, ...]:
    """Return each partition once. A worker that no longer reports may still list one that another worker has taken over."""
    latest = {each.partition: each for of_one in sorted(reports, key=_reported_at) for each in of_one.partitions}
    return tuple(sorted(latest.values(), key=lambda each: _place(each.partition)))


def _reported_at(report: StatusReport) -> str:
    return report.reported_at


def _sums(rows: Iterable[Sequence[int]]) -> list[int]:
    return [sum(column) for column in zip(*rows, strict=True)]


def _added(reports: Iterable[StatusReport], get: Callable[[StatusReport], Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in reports:
        total.update(get(each))
    return dict(total)


def _place(partition: str) -> tuple[str, int]:
    """Return a sort key in which partition 10 comes after partition 9."""
    return Partition.find(partition) or (partition, -1)


class Served(SideReport, frozen=True):
    """`urls` by name, such as `console`; `problem` says why nothing is served.

    `process_id` is the supervisor's where it serves itself, or nothing does.
    """

    urls: Mapping[str, str] = {}


class ServedStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """What `status` says of it: the addresses by name, and notes about what is not served."""

    http: Mapping[str, str] = {}
    http_notes: tuple[str, ...] = ()


def console_file(run_directory: Path) -> SideFile[Served]:
    """Return the file with the addresses of the console and of the metrics."""
    return SideFile(run_directory, "console", Served)


def probes_file(run_directory: Path) -> SideFile[Served]:
    """Return the file with the address of the health probes."""
    return SideFile(run_directory, "probes", Served)
