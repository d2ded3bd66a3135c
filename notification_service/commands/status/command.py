"""`resequencer status`: prints the service's report: ready or not and why, or not running."""

import json
import sys
from argparse import Namespace
from typing import Any

import msgspec

from notification_service.commands.status.disk_use import Taken, disk_use, in_words
from notification_service.configuration.configuration import load
from notification_service.status.aggregation import aggregation_lines
from notification_service.status.bridge import bridge_lines
from notification_service.status.delivery import delivery_lines
from notification_service.status.report import State
from notification_service.status.service_report import ServiceReport
from notification_service.status.text import served_lines, status_lines
from notification_service.supervision.exit_code import ExitCode
from notification_service.supervision.running_service import find_service
from notification_service.supervision.system_clock import SystemClock
from notification_service.wiring.aggregation.status import find_aggregation_of
from notification_service.wiring.bridge.status import find_bridge_of
from notification_service.wiring.console.served import find_served
from notification_service.wiring.delivery.status import find_delivery_of
from resequencer.printable import printable


def status(arguments: Namespace) -> ExitCode:
    """Print the status. Exit code 0 only if all workers are ready."""
    configuration = load(arguments.config, arguments.overrides)
    run_directory = configuration.notification.run_directory
    state, service, _ = found = find_service(run_directory, SystemClock().now())
    use, served = disk_use(configuration), find_served(run_directory, found)
    delivery, aggregation = find_delivery_of(configuration, found), find_aggregation_of(configuration, found)
    bridge = find_bridge_of(configuration, found)
    if arguments.json:
        told = {
            **(_told(service, use) if service else {}),
            **msgspec.to_builtins(served),
            **msgspec.to_builtins(bridge),
            **msgspec.to_builtins(delivery),
            **msgspec.to_builtins(aggregation),
            "state": state,
        }
        sys.stdout.write(json.dumps(told, ensure_ascii=False, indent=2) + "\n")
    else:
        lines = [
            *(status_lines(service, in_words(use)) if service else [state]),
            *bridge_lines(bridge),
            *delivery_lines(delivery),
            *aggregation_lines(aggregation),
            *served_lines(served),
        ]
        sys.stdout.write("\n".join(map(printable, lines)) + "\n")
    return ExitCode.DONE if state == State.READY else ExitCode.NOT_SO


def _told(service: ServiceReport, use: dict[str, Taken]) -> dict[str, Any]:
    """Return the report as a dict; with several workers all in one, and each under `workers`."""
    told = {**msgspec.to_builtins(service.whole), "disk": msgspec.to_builtins(use)}
    if len(service.workers) > 1:
        told["workers"] = [{**msgspec.to_builtins(each), "state": state} for state, each in service.workers]
    return told
