"""What aggregation workers tell `status`, each in a file of its own."""

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from notification_service.status.file import RunFile
from resequencer.clock import Instant, instant_of
from resequencer.printable import counted

STALE_AFTER_MS = 10_000
"""A worker reports every second; a report this old says that it hangs or cannot write."""


class StoreStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """A store as one worker sees it, or as all of a service do together.

    `partitions` are those of the commands that are read; `behind` is how much of them is not applied yet, in offsets. The counts
    are since the workers' starts. `problem` says why commands wait, `notes` what does not stop it. `untaken` counts the
    partitions that a worker cannot take over; their commands wait, and are not in `behind`.
    """

    store: str
    partitions: tuple[str, ...] = ()
    behind: int = 0
    applied: int = 0
    completed: int = 0
    dead_letters: int = 0
    problem: str | None = None
    notes: tuple[str, ...] = ()
    untaken: int = 0


class AggregationReport(msgspec.Struct, frozen=True):
    """The last report of one aggregation worker; `problem` says why it does not run.

    `service_process_id` is the supervisor's, `process_id` the worker's own, or the supervisor's while there is no worker. Then
    `reported_at` is None.
    """

    service_process_id: int
    process_id: int
    slot: int
    reported_at: str | None
    problem: str | None = None
    stores: tuple[StoreStatus, ...] = ()


class AggregationFile(RunFile[AggregationReport]):
    """`aggregation-K.json` of the aggregation worker in slot K."""

    def __init__(self, run_directory: Path, slot: int) -> None:
        super().__init__(run_directory, f"aggregation-{slot}", AggregationReport)
        self._slot = slot

    def write_problem(self, why: str) -> None:
        """Write, as the supervisor, why the worker does not run."""
        self.write(AggregationReport(os.getpid(), os.getpid(), self._slot, None, why))


class AggregationWorkerStatus(msgspec.Struct, frozen=True):
    """An aggregation worker as `status` shows it."""

    slot: int
    process_id: int | None
    problem: str | None


class AggregationStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """What `status` says of aggregation: the workers of this service, and the stores with the partitions of all of them."""

    aggregation_workers: tuple[AggregationWorkerStatus, ...] = ()
    stores: tuple[StoreStatus, ...] = ()


def find_aggregation(run_directory: Path, service_process_id: int, count: int, now: Instant) -> AggregationStatus:
    """Combine the reports of the `count` aggregation workers of a service that runs."""
    reports = [AggregationFile(run_directory, slot).find(service_process_id) for slot in range(count)]
    workers = tuple(_worker(slot, report, now) for slot, report in enumerate(reports))
    return AggregationStatus(workers, _merged(each for report in reports if report is not None for each in report.stores))


def aggregation_lines(status: AggregationStatus) -> list[str]:
    """Return the lines for people: one for each worker, and one for each store."""
    workers = [
        f"aggregation worker {each.slot}{f' (process {each.process_id})' if each.process_id else ''}: {each.problem or 'runs'}"
        for each in status.aggregation_workers
    ]
    return [*workers, *(line for each in status.stores for line in _store_lines(each))]


def _store_lines(status: StoreStatus) -> list[str]:
    done = f"{counted(status.applied, 'command')} applied, {status.completed} completed, {status.behind} behind"
    lines = [f"store {status.store}: {counted(len(status.partitions), 'partition')}, {done}"]
    if status.dead_letters:
        lines.append(f"store {status.store}: {counted(status.dead_letters, 'dead letter')}")
    lines += [f"store {status.store}: {status.problem}"] if status.problem is not None else []
    return [*lines, *(f"store {status.store}: {each}" for each in status.notes)]


def _merged(stores: Iterable[StoreStatus]) -> tuple[StoreStatus, ...]:
    found: dict[str, StoreStatus] = {}
    for each in stores:
        before = found.get(each.store, StoreStatus(each.store))
        found[each.store] = StoreStatus(
            each.store,
            tuple(sorted((*before.partitions, *each.partitions))),
            before.behind + each.behind,
            before.applied + each.applied,
            before.completed + each.completed,
            before.dead_letters + each.dead_letters,
            before.problem or each.problem,
            tuple(dict.fromkeys((*before.notes, *each.notes))),
            before.untaken + each.untaken,
        )
    return tuple(found.values())


def _worker(slot: int, report: AggregationReport | None, now: Instant) -> AggregationWorkerStatus:
    if report is None:
        return AggregationWorkerStatus(slot, None, "it is starting")
    if report.reported_at is None:
        return AggregationWorkerStatus(slot, None, report.problem)
    is_stale = now - instant_of(report.reported_at) > STALE_AFTER_MS
    told = f"it has not reported since {report.reported_at}" if is_stale else report.problem
    return AggregationWorkerStatus(slot, report.process_id, told)


"""The bridge reports every second; a report this old says that it hangs or cannot write."""


class BridgeReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last report of the bridge. `problem` says why it stands still or does not run, `notes` what does not stop it.

    `service_process_id` is the supervisor's, `process_id` the bridge's own, or the supervisor's while there is no bridge. Then
    `reported_at` is None. `source` and `start` are lines for people. `appended` counts messages that are durable and
    acknowledged, since the start of the process; `waiting` are taken and not acknowledged.
    """

    service_process_id: int
    process_id: int
    reported_at: str | None
    problem: str | None = None
    source: str = ""
    start: str = ""
    appended: int = 0
    waiting: int = 0
    notes: tuple[str, ...] = ()


class BridgeFile(RunFile[BridgeReport]):
    """`bridge.json` of the bridge."""

    def __init__(self, run_directory: Path) -> None:
        super().__init__(run_directory, "bridge", BridgeReport)

    def write_problem(self, why: str) -> None:
        """Write, as the supervisor, why the bridge does not run."""
        self.write(BridgeReport(os.getpid(), os.getpid(), None, why))


class BridgeState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The bridge as `status` shows it. Without a process it does not run."""

    process_id: int | None
    problem: str | None
    source: str = ""
    start: str = ""
    appended: int = 0
    waiting: int = 0
    notes: tuple[str, ...] = ()


class BridgeStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """What `status` says of the bridge; None where no bridge is configured, or the service does not run."""

    bridge: BridgeState | None = None


def find_bridge(run_directory: Path, service_process_id: int, now: Instant) -> BridgeStatus:
    """Return the state of the bridge of a service that runs."""
    report = BridgeFile(run_directory).find(service_process_id)
    if report is None:
        return BridgeStatus(BridgeState(None, "it is starting"))
    if report.reported_at is None:
        return BridgeStatus(BridgeState(None, report.problem))
    is_stale = now - instant_of(report.reported_at) > STALE_AFTER_MS
    problem = f"it has not reported since {report.reported_at}" if is_stale else report.problem
    counts = report.appended, report.waiting, report.notes
    return BridgeStatus(BridgeState(report.process_id, problem, report.source, report.start, *counts))


def bridge_lines(status: BridgeStatus) -> list[str]:
    """Return the lines for people."""
    bridge = status.bridge
    if bridge is None:
        return []
    told = f"bridge{f' (process {bridge.process_id})' if bridge.process_id else ''}: {bridge.problem or 'runs'}"
    if bridge.process_id is None:
        return [told]
    done = f"{counted(bridge.appended, 'message')} appended, {bridge.waiting} not acknowledged yet"
    return [told, f"bridge: from {bridge.source} to {bridge.start}: {done}", *(f"bridge: {each}" for each in bridge.notes)]
