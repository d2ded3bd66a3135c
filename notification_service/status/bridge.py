"""What the bridge tells `status`, in a file of its own."""

import os
from pathlib import Path

import msgspec

from notification_service.status.run_file import RunFile
from resequencer.clock import Instant, instant_of
from resequencer.printable import counted

STALE_AFTER_MS = 10_000
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
