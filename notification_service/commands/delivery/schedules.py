"""`resequencer delivery schedules`: how far the schedules are, as the running service reports them."""

import sys
from argparse import Namespace

import msgspec

from notification_service.configuration.configuration import Configuration
from notification_service.status.delivery import schedule_line
from notification_service.supervision.exit_code import ExitCode
from notification_service.supervision.locks import find_service
from notification_service.supervision.system_clock import SystemClock
from notification_service.wiring.side_reports import find_delivery_of
from resequencer.printable import counted, printable


def schedules(arguments: Namespace, configuration: Configuration) -> ExitCode:
    """List the schedules."""
    service = find_service(configuration.notification.run_directory, SystemClock().now())
    found = find_delivery_of(configuration, service).schedules
    for each in found:
        sys.stdout.write(msgspec.json.encode(each).decode() + "\n" if arguments.json else printable(schedule_line(each)) + "\n")
    configured = len(configuration.delivery.schedules)
    running = "" if service.holder is not None else "; the service does not run"
    sys.stderr.write(f"resequencer: {counted(configured, 'schedule')}, {len(found)} reported{running}\n")
    return ExitCode.DONE
