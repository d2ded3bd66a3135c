"""`resequencer status`: prints the service's report: ready or not and why, or not running."""

import json
import sys
from argparse import Namespace
from typing import Any

import msgspec

from daemon.commands.disk_use import Taken, disk_use, in_words
from daemon.configuration.configuration import load
from daemon.exit_code import ExitCode
from daemon.supervision.run_lock import UNKNOWN, find_holder
from daemon.system_clock import SystemClock
from domain.printable import printable
from status.report import State
from status.service_report import ServiceReport, find_reports, service_report, state_of
from status.text import status_lines


def status(arguments: Namespace) -> ExitCode:
    """Print the status. Exit code 0 only if all workers are ready."""
    configuration = load(arguments.config, arguments.overrides)
    run_directory = configuration.notification.run_directory
    # The lock's holder is read first, so that the report cannot be of an earlier service.
    holder, now = find_holder(run_directory), SystemClock().now()
    reports = find_reports(run_directory)
    if reports and holder is not None and holder not in (str(reports[0].process_id), UNKNOWN):
        reports = ()
    is_running = holder is not None
    service = service_report(reports, now, is_running=is_running) if reports else None
    state = service.state if service else state_of(None, now, is_running=is_running)
    use = disk_use(configuration)
    if arguments.json:
        told = {**(_told(service, use) if service else {}), "state": state}
        sys.stdout.write(json.dumps(told, ensure_ascii=False, indent=2) + "\n")
    else:
        lines = status_lines(service, in_words(use)) if service else [state]
        sys.stdout.write("\n".join(map(printable, lines)) + "\n")
    return ExitCode.DONE if state == State.READY else ExitCode.NOT_SO


def _told(service: ServiceReport, use: dict[str, Taken]) -> dict[str, Any]:
    """Return the report as a dict; with several workers all in one, and each under `workers`."""
    told = {**msgspec.to_builtins(service.whole), "disk": msgspec.to_builtins(use)}
    if len(service.workers) > 1:
        told["workers"] = [{**msgspec.to_builtins(each), "state": state} for state, each in service.workers]
    return told
