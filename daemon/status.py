"""`resequencer status`: what the service says of itself, ready or not and why, or not running."""

import json
import sys
from argparse import Namespace
from typing import Any

import msgspec

from daemon.configuration import load
from daemon.disk_use import Taken, disk_use, in_words
from daemon.exit_code import ExitCode
from daemon.run_lock import UNKNOWN, find_holder
from daemon.status_file import StatusFile
from daemon.status_report import State, StatusReport, instant_of
from daemon.system_clock import SystemClock
from domain.clock import Instant
from domain.printable import printable

NOT_RUNNING, STALE = "not running", "stale"
STALE_MS = 10_000
"""A worker reports twice a second; a report this old says that it hangs or cannot write."""


def status(arguments: Namespace) -> ExitCode:
    """Exit code 0 only if the service is ready."""
    configuration = load(arguments.config, arguments.overrides)
    run_directory = configuration.notification.run_directory
    # The holder first: a report that is read later is not an older one's.
    holder = find_holder(run_directory)
    report = StatusFile(run_directory).find()
    if holder is not None and report is not None and holder not in (str(report.process_id), UNKNOWN):
        report = None
    state = state_of(report, SystemClock().now(), is_running=holder is not None)
    use = disk_use(configuration)
    if arguments.json:
        told = {**(_told(report, use) if report else {}), "state": state}
        sys.stdout.write(json.dumps(told, ensure_ascii=False, indent=2) + "\n")
    else:
        sys.stdout.write("\n".join(map(printable, _lines(state, report, in_words(use)))) + "\n")
    return ExitCode.DONE if state == State.READY else ExitCode.NOT_SO


def state_of(report: StatusReport | None, now: Instant, *, is_running: bool) -> str:
    """What to say of a service whose own last report this is; None if it has not made one yet."""
    if not is_running:
        return NOT_RUNNING
    if report is None:
        return State.STARTING
    if abs(now - instant_of(report.reported_at)) > STALE_MS:
        return STALE
    return report.state


def _told(report: StatusReport, use: dict[str, Taken]) -> dict[str, Any]:
    return {**msgspec.to_builtins(report), "disk": msgspec.to_builtins(use)}


def _lines(state: str, report: StatusReport | None, on_disk: str) -> list[str]:
    if report is None:
        return [state]
    if state == NOT_RUNNING:
        return [f"{state}: it ended with: {report.reason}" if report.reason else state]
    units, counts = report.units, report.counts
    reason = f"nothing was reported since {report.reported_at}, when it was {report.state}" if state == STALE else report.reason
    lines = [
        f"{state}: {reason}" if reason else state,
        f"process {report.process_id} since {report.started_at}, reported at {report.reported_at}",
        *_restarts(report),
        f"units: {units.active} active, {units.waiting} waiting with {units.stashed_envelopes} stashed envelopes",
        f"records {counts.get('records', 0)}, handled {counts.get('handled', 0)}, duplicates {counts.get('duplicates', 0)}, "
        f"released units {counts.get('released_units', 0)}, dead letters {sum(report.dead_letters.values())}",
        f"notifications {sum(report.notifications.values())}: "
        + ", ".join(f"{name} {count}" for name, count in sorted(report.notifications.items())),
        f"on disk: {on_disk}",
    ]
    lines += [
        f"{each.partition}: read to {each.read_to}, acknowledged {each.acknowledged}, {each.unpublished} to leave"
        for each in report.partitions
    ]
    lines += [
        f"waits since {each.since}: {each.unit} for {each.waits_for} ({each.stashed} stashed, {each.kind} at {each.until})"
        for each in report.oldest_waits
    ]
    return lines


def _restarts(report: StatusReport) -> list[str]:
    if not report.restarts:
        return []
    times = "once" if report.restarts == 1 else f"{report.restarts} times"
    return [f"started again {times}: the worker before {report.last_death}"]
