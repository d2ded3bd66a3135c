"""`resequencer delivery schedules`: how far the schedules are, as the running service reports them."""

import sys
from argparse import Namespace

import msgspec

from daemon.configuration.configuration import Configuration
from daemon.delivery.status import find_delivery_of
from daemon.exit_code import ExitCode
from daemon.supervision.running_service import find_service
from daemon.system_clock import SystemClock
from domain.printable import counted, printable
from status.delivery import schedule_line


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
