"""What aggregation workers and the bridge report to `status`, each in a file of its own."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from notification_service.status.file import LATE_MS, SideFile, SideReport, SideStatus, side_line, side_status
from notification_service.status.service_report import sum_of_lags
from resequencer.clock import Instant, instant_of
from resequencer.printable import counted


class StoreStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """A store as one worker sees it, or as all of a service do together.

    `partitions` are those of the commands that are read; `behind` is how much of them is not applied yet, in offsets: None while
    that is not known, because of a `problem`, or of `untaken` partitions that a worker cannot take over. The counts are since the
    workers' starts. `problem` says why commands wait, `notes` what does not stop it. What was there at the instant
    `pending_since` (ISO 8601, UTC) is not all applied, as far as is known; a store that keeps up has one of a moment ago.
    """

    store: str
    partitions: tuple[str, ...] = ()
    behind: int | None = 0
    applied: int = 0
    completed: int = 0
    dead_letters: int = 0
    problem: str | None = None
    notes: tuple[str, ...] = ()
    untaken: int = 0
    pending_since: str | None = None


class AggregationReport(SideReport, frozen=True):
    """The last report of one aggregation worker."""

    stores: tuple[StoreStatus, ...] = ()


def aggregation_file(run_directory: Path, slot: int) -> SideFile[AggregationReport]:
    """Return `aggregation-K.json` of the aggregation worker in slot K."""
    return SideFile(run_directory, f"aggregation-{slot}", AggregationReport)


class StoreCounts(msgspec.Struct, frozen=True):
    """What the worker in `slot` has counted of a store since its start."""

    store: str
    slot: int
    applied: int
    completed: int
    dead_letters: int


class AggregationStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """What `status` says of aggregation: the workers of this service, and the stores with the partitions of all of them.

    `store_counts` has the counts of each worker, which begin at 0 with it.
    """

    aggregation_workers: tuple[SideStatus, ...] = ()
    stores: tuple[StoreStatus, ...] = ()
    store_counts: tuple[StoreCounts, ...] = ()

    @property
    def behind(self) -> int | None:
        """How much of the commands of all stores is not applied yet; None while that is not known of one."""
        return sum_of_lags(each.behind for each in self.stores)


def find_aggregation(run_directory: Path, service_process_id: int, count: int, now: Instant) -> AggregationStatus:
    """Combine the reports of the `count` aggregation workers of a service that runs."""
    reports = [aggregation_file(run_directory, slot).find(service_process_id) for slot in range(count)]
    workers = tuple(side_status(report, now, slot) for slot, report in enumerate(reports))
    found = [(slot, each) for slot, report in enumerate(reports) if report is not None for each in report.stores]
    counts = tuple(StoreCounts(each.store, slot, each.applied, each.completed, each.dead_letters) for slot, each in found)
    return AggregationStatus(workers, _merged(each for _, each in found), counts)


def aggregation_lines(status: AggregationStatus) -> list[str]:
    """Return the lines for people: one for each worker, and one for each store."""
    workers = [side_line(f"aggregation worker {each.slot}", each, "runs") for each in status.aggregation_workers]
    return [*workers, *(line for each in status.stores for line in _store_lines(each))]


def aggregation_notes(status: AggregationStatus, now: Instant) -> list[str]:
    """Say which stores are late, as sentences for `status` and the overview."""
    late = [each for each in status.stores if each.pending_since and now - instant_of(each.pending_since) > LATE_MS]
    return [
        f"the store {each.store} is late: of what came before {each.pending_since} something is not counted yet" for each in late
    ]


def _store_lines(status: StoreStatus) -> list[str]:
    behind = "lag unknown" if status.behind is None else f"{status.behind} behind"
    done = f"{counted(status.applied, 'command')} applied, {status.completed} completed, {behind}"
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
            None if before.behind is None or each.behind is None else before.behind + each.behind,
            before.applied + each.applied,
            before.completed + each.completed,
            before.dead_letters + each.dead_letters,
            before.problem or each.problem,
            tuple(dict.fromkeys((*before.notes, *each.notes))),
            before.untaken + each.untaken,
            min((at for at in (before.pending_since, each.pending_since) if at is not None), default=None),
        )
    return tuple(found.values())


class BridgeReport(SideReport, frozen=True, omit_defaults=True):
    """The last report of the bridge; `notes` say what does not stop it.

    `source` and `start` are lines for people. `appended` counts messages that are durable and acknowledged, since the start of
    the process; `waiting` are taken and not acknowledged.
    """

    source: str = ""
    start: str = ""
    appended: int = 0
    waiting: int = 0
    notes: tuple[str, ...] = ()


def bridge_file(run_directory: Path) -> SideFile[BridgeReport]:
    """Return `bridge.json` of the bridge."""
    return SideFile(run_directory, "bridge", BridgeReport)


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
    report = bridge_file(run_directory).find(service_process_id)
    state = side_status(report, now)
    if report is None or state.process_id is None:
        return BridgeStatus(BridgeState(None, state.problem))
    counts = report.appended, report.waiting, report.notes
    return BridgeStatus(BridgeState(state.process_id, state.problem, report.source, report.start, *counts))


def bridge_lines(status: BridgeStatus) -> list[str]:
    """Return the lines for people."""
    bridge = status.bridge
    if bridge is None:
        return []
    line = side_line("bridge", SideStatus(0, bridge.process_id, bridge.problem), "runs")
    if bridge.process_id is None:
        return [line]
    done = f"{counted(bridge.appended, 'message')} appended, {bridge.waiting} not acknowledged yet"
    return [line, f"bridge: from {bridge.source} to {bridge.start}: {done}", *(f"bridge: {each}" for each in bridge.notes)]
