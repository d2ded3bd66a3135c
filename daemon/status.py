"""`resequencer status`: what the service says of itself, ready or not and why, or not running."""

import json
import sys
from argparse import Namespace

import msgspec

from daemon.configuration import load
from daemon.exit_code import ExitCode
from daemon.logs import printable
from daemon.run_lock import UNKNOWN, find_holder
from daemon.status_file import StatusFile
from daemon.status_report import State, StatusReport, instant_of
from daemon.system_clock import SystemClock
from domain.clock import Instant

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
    if arguments.json:
        told = {**(msgspec.to_builtins(report) if report else {}), "state": state}
        sys.stdout.write(json.dumps(told, ensure_ascii=False, indent=2) + "\n")
    else:
        sys.stdout.write("\n".join(map(printable, _lines(state, report, is_running=holder is not None))) + "\n")
    return ExitCode.DONE if state == State.READY else ExitCode.NOT_SO


def state_of(report: StatusReport | None, now: Instant, *, is_running: bool) -> str:
    """What to say of a service whose own last report this is; None if it has not made one yet."""
    if not is_running:
        return "not running"
    if report is None:
        return State.STARTING
    if abs(now - instant_of(report.reported_at)) > STALE_MS:
        return "stale"
    return report.state


def _lines(state: str, report: StatusReport | None, *, is_running: bool) -> list[str]:
    if report is None:
        return [state]
    if not is_running:
        return [f"{state}: it ended with: {report.reason}" if report.reason else state]
    units, counts = report.units, report.counts
    lines = [
        f"{state}" + (f": {report.reason}" if report.reason else ""),
        f"process {report.process_id} since {report.started_at}, reported at {report.reported_at}",
        f"units: {units.active} active, {units.waiting} waiting with {units.stashed_envelopes} stashed envelopes",
        f"records {counts.get('records', 0)}, handled {counts.get('handled', 0)}, duplicates {counts.get('duplicates', 0)}, "
        f"released units {counts.get('released_units', 0)}, dead letters {sum(report.dead_letters.values())}",
        f"notifications {sum(report.notifications.values())}: "
        + ", ".join(f"{name} {count}" for name, count in sorted(report.notifications.items())),
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
