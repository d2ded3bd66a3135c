"""`resequencer supervise`: runs the service with its supervisor in the foreground; `start` runs it in the background."""

import os
import signal
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import sleep

import msgspec

from notification_service.commands.command import told_again
from notification_service.configuration.configuration import Configuration, load
from notification_service.status.aggregation import aggregation_file, bridge_file
from notification_service.status.delivery import delivery_file
from notification_service.status.file import StatusFile
from notification_service.status.report import Identity
from notification_service.status.service_report import console_file
from notification_service.supervision.exits import Exits
from notification_service.supervision.locks import AlreadyRunning, acquire_locks
from notification_service.supervision.probes import make_probes
from notification_service.supervision.restart_policy import RestartPolicy
from notification_service.supervision.service_log import ServiceLog
from notification_service.supervision.service_process import own_command
from notification_service.supervision.side_process import SideProcess
from notification_service.supervision.supervisor import Supervisor
from notification_service.supervision.suspects import Suspects
from notification_service.supervision.system_clock import SystemClock
from notification_service.supervision.watchdog import Watchdog
from notification_service.supervision.worker_slot import WorkerSlot
from notification_service.wiring.composition import refuse_unusable
from notification_service.worker.scheduled_archive import add_archive_flag

_ORPHAN_SECONDS = 35
"""How long to wait for the locks: the workers of a killed supervisor finish their cycles before they release them."""
_TRY_SECONDS = 0.2


def add_arguments(parser: ArgumentParser) -> None:
    """Add what only a supervisor takes."""
    add_archive_flag(parser)
    parser.add_argument(
        "--log-to-stderr",
        action="store_true",
        help="write the log to stderr, for a container, and not to service.log in the run directory",
    )


def supervise(arguments: Namespace) -> int:
    """Run until SIGTERM or SIGINT. Exit code 1 if a worker cannot be kept alive; the status has the reason."""
    configuration = load(arguments.config, arguments.overrides)
    refuse_unusable(configuration)
    locks = _acquire_patiently(configuration)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    log = ServiceLog(None if arguments.log_to_stderr else configuration.notification.run_directory, configuration.logging)
    console = _console(arguments, configuration, log) if configuration.http.is_enabled else None
    beside = _beside(arguments, configuration, log)
    # Before the probes answer, the reports of an earlier service are replaced: in a container its process had the same id.
    supervisor = Supervisor(_slots(arguments, configuration, locks, log), beside=beside, console=console)
    with _probed(configuration):
        return supervisor.run()


def supervise_in_sight(arguments: Namespace, configuration: Configuration, is_told: Callable[[], bool]) -> int:
    """Supervise in the foreground: logs go to stderr, and the service ends with the terminal, or with its only worker.

    `is_told` returns whether a stop was requested already.
    """
    locks = _acquire_patiently(configuration)
    log = ServiceLog(None, configuration.logging)
    slots, beside = _slots(arguments, configuration, locks, log), _beside(arguments, configuration, log)
    supervisor = Supervisor(slots, starts_again=configuration.worker_count > 1, beside=beside)
    with _probed(configuration):
        return supervisor.run(is_told=is_told)


def _slots(arguments: Namespace, configuration: Configuration, locks: Sequence[int], log: ServiceLog) -> list[WorkerSlot]:
    command = own_command("run", *told_again(arguments))
    run_directory, count, clock = configuration.notification.run_directory, configuration.worker_count, SystemClock()
    stale_after_ms = configuration.stale_after_ms
    ours = Identity(os.getpid(), str(configuration.file), clock.now(), worker_count=count, stale_after_ms=stale_after_ms)
    exits = [Exits(StatusFile(run_directory, slot), msgspec.structs.replace(ours, slot=slot), clock) for slot in range(count)]
    suspects, limit_ms = Suspects(run_directory), configuration.resequencer.handling_limit_ms
    pause_ms = configuration.restart_pause_ms
    return [WorkerSlot(command, locks, log, each, Watchdog(suspects, limit_ms), RestartPolicy(pause_ms)) for each in exits]


def _console(arguments: Namespace, configuration: Configuration, log: ServiceLog) -> SideProcess:
    command = own_command("console", *told_again(arguments))
    return SideProcess("the console", command, log, console_file(configuration.notification.run_directory))


def _beside(arguments: Namespace, configuration: Configuration, log: ServiceLog) -> list[SideProcess]:
    """Return the bridge, the delivery workers and the aggregation workers."""
    run_directory = configuration.notification.run_directory
    kinds = (
        ("delivery", "delivery", configuration.delivery.worker_count, delivery_file),
        ("aggregation", "groups", configuration.aggregation.worker_count, aggregation_file),
    )
    bridge = own_command("bridge", *told_again(arguments))
    bridges = [SideProcess("the bridge", bridge, log, bridge_file(run_directory))] if configuration.bridge.is_enabled else []
    return bridges + [
        SideProcess(
            f"{kind} worker {slot}",
            own_command(verb, "run", *told_again(arguments), "--slot", str(slot)),
            log,
            file(run_directory, slot),
        )
        for kind, verb, count, file in kinds
        for slot in range(count)
    ]


@contextmanager
def _probed(configuration: Configuration) -> Iterator[None]:
    """Answer health probes meanwhile, if HTTP is enabled."""
    if not configuration.http.is_enabled:
        yield
        return
    probes = make_probes(configuration.http.probes, configuration.notification.run_directory, SystemClock())
    probes.start()
    try:
        yield
    finally:
        probes.close()


def _acquire_patiently(configuration: Configuration) -> list[int]:
    for _ in range(round(_ORPHAN_SECONDS / _TRY_SECONDS)):
        try:
            return acquire_locks(configuration)
        except AlreadyRunning as error:
            if error.is_alive:
                raise
            sleep(_TRY_SECONDS)
    return acquire_locks(configuration)
