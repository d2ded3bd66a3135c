"""`resequencer run`: the service in the foreground."""

import faulthandler
import logging
import os
from argparse import SUPPRESS, ArgumentParser, Namespace
from contextlib import closing
from functools import partial

import msgspec

from notification_service.commands.command import told_again
from notification_service.commands.supervise import supervise_in_sight
from notification_service.configuration.configuration import Configuration, load
from notification_service.configuration.schema import path_of
from notification_service.configuration.sections import Sections
from notification_service.status.report import Identity
from notification_service.supervision.exit_code import ExitCode
from notification_service.supervision.in_flight_memory import InFlightMemory
from notification_service.supervision.locks import acquire_locks
from notification_service.supervision.service_log import configure_logs
from notification_service.supervision.stop_signal import Lifeline, StopSignal
from notification_service.supervision.system_clock import SystemClock
from notification_service.wiring.composition import refuse_unusable
from notification_service.wiring.console.workers import THREADS
from notification_service.worker.scheduled_archive import Archiving, add_archive_flag
from notification_service.worker.worker import Worker
from resequencer.errors import ConfigurationError
from resequencer.gc_tuning import calm_collector

_log = logging.getLogger("resequencer.daemon")


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of `run`. Some are hidden in the help, because only a supervisor uses them.

    A supervisor gives its worker a slot, the descriptors of a pipe and of memory that they share, and the exits of earlier
    workers.
    """
    parser.add_argument("--alone", action="store_true", help="run in one process without a supervisor, for debuggers")
    parser.add_argument("--slot", type=int, default=0, help=SUPPRESS)
    parser.add_argument("--lifeline", type=int, help=SUPPRESS)
    parser.add_argument("--in-flight", type=int, help=SUPPRESS)
    parser.add_argument("--restarts", type=int, default=0, help=SUPPRESS)
    parser.add_argument("--last-exit", help=SUPPRESS)
    parser.add_argument("--restart-causes", type=partial(msgspec.json.decode, type=dict[str, int]), default={}, help=SUPPRESS)
    add_archive_flag(parser)


def run(arguments: Namespace) -> int:
    """Run the service until SIGTERM or SIGINT. The first signal drains and ends with 0, a second one ends at once.

    This process is the supervisor. If it has one worker, it ends with the worker's exit code, unless an envelope ended the
    worker. A worker is another process of the same command with a lifeline. The supervisor holds the locks for it, and the worker
    drains when the lifeline is cut.
    """
    lifeline = None if arguments.lifeline is None else Lifeline(arguments.lifeline)
    stop = StopSignal(lifeline)
    stop.install()
    configuration = load(arguments.config, arguments.overrides)
    refuse_unusable(configuration)
    if lifeline is None and not arguments.alone:
        return supervise_in_sight(arguments, configuration, lambda: stop.is_set)
    if arguments.alone and configuration.worker_count > 1:
        raise ConfigurationError(
            path_of(Sections, "worker_count"), "is more than 1, but `run --alone` is one process: use one or the other"
        )
    configure_logs(configuration.logging)
    faulthandler.enable()  # If native code crashes, the stack is in the log.
    faulthandler.register(THREADS, all_threads=True)
    if lifeline is None:
        acquire_locks(configuration)
    _log.info("starting with %s; run directory %s", configuration.file, configuration.notification.run_directory)
    _warn(configuration)
    process_id = os.getpid() if lifeline is None else os.getppid()
    with closing(Archiving(told_again(arguments), configuration.ingress.archive_every_ms)) as archiving:
        identity = Identity(
            process_id,
            str(configuration.file),
            SystemClock().now(),
            arguments.restarts,
            arguments.last_exit,
            arguments.slot,
            configuration.worker_count,
            os.getpid(),
            arguments.restart_causes,
            configuration.stale_after_ms,
        )
        worker = Worker(
            configuration, stop.wait, lambda: stop.is_set, identity, archiving.look, InFlightMemory(arguments.in_flight)
        )
        calm_collector()
        worker.run()
    return ExitCode.DONE


def _warn(configuration: Configuration) -> None:
    for warning in configuration.warnings:
        _log.warning("%s", warning)
