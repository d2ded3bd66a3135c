"""`resequencer run | supervise | bridge | start | stop | restart`: the processes of the service."""

import faulthandler
import logging
import os
import signal
import subprocess
import sys
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from time import monotonic, sleep

import msgspec

from notification_service.bridge.runner import run_reporting
from notification_service.bridge.settings import BridgeSettings
from notification_service.commands.check import look_around
from notification_service.commands.command import repeated_arguments, stop_signal
from notification_service.configuration.configuration import Configuration, load
from notification_service.configuration.schema import path_of
from notification_service.configuration.sections import Sections
from notification_service.status.aggregation import aggregation_file, bridge_file
from notification_service.status.delivery import delivery_file
from notification_service.status.file import StatusFile
from notification_service.status.report import Identity, State
from notification_service.status.service_report import console_file, find_reports, service_report
from notification_service.status.text import served_lines
from notification_service.supervision.exit_code import ExitCode
from notification_service.supervision.exit_rules import RestartPolicy
from notification_service.supervision.exits import Exits
from notification_service.supervision.in_flight_memory import InFlightMemory
from notification_service.supervision.locks import NAME as LOCK
from notification_service.supervision.locks import UNKNOWN, AlreadyRunning, RunLock, acquire_locks, find_holder, find_service
from notification_service.supervision.probes import make_probes
from notification_service.supervision.service_log import NAME, ServiceLog, configure_logs
from notification_service.supervision.service_process import own_command
from notification_service.supervision.side_process import SideProcess
from notification_service.supervision.started import Started, started_file
from notification_service.supervision.supervisor import Supervisor
from notification_service.supervision.suspects import Suspects
from notification_service.supervision.system_clock import SystemClock
from notification_service.supervision.watchdog import Watchdog
from notification_service.supervision.worker_slot import WorkerSlot
from notification_service.wiring.bridge import make_bridge, make_report
from notification_service.wiring.composition import refuse_unusable
from notification_service.wiring.local_workers import THREADS
from notification_service.wiring.regions import refuse_unusable_bridge
from notification_service.wiring.rolling_restart import restart_rolling
from notification_service.wiring.side_reports import find_served
from notification_service.worker.scheduled_archive import Archiving, add_archive_flag
from notification_service.worker.worker import Worker
from resequencer.errors import ConfigurationError
from resequencer.gc_tuning import calm_collector
from storage.private_file import make_lasting_directory, make_private

_ORPHAN_SECONDS = 35
"""How long to wait for the locks: the workers of a killed supervisor finish their cycles before they release them."""
_TRY_SECONDS = 0.2


def add_supervise_arguments(parser: ArgumentParser) -> None:
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
    started_file(configuration.notification.run_directory).write(Started.with_these(configuration))
    console = _console(arguments, configuration, log) if configuration.http.is_enabled else None
    beside = _beside(arguments, configuration, log)
    # Before the probes answer, the reports of an earlier service are replaced: in a container its process had the same id.
    supervisor = Supervisor(_slots(arguments, configuration, locks, log), beside=beside, console=console)
    with _probed(configuration):
        return supervisor.run()


def supervise_in_sight(arguments: Namespace, configuration: Configuration, has_signal: Callable[[], bool]) -> int:
    """Supervise in the foreground: logs go to stderr, and the service ends with the terminal, or with its only worker.

    `has_signal` returns whether a stop was requested already.
    """
    locks = _acquire_patiently(configuration)
    log = ServiceLog(None, configuration.logging)
    started_file(configuration.notification.run_directory).write(Started.with_these(configuration))
    slots, beside = _slots(arguments, configuration, locks, log), _beside(arguments, configuration, log)
    supervisor = Supervisor(slots, starts_again=configuration.worker_count > 1, beside=beside)
    with _probed(configuration):
        return supervisor.run(has_signal=has_signal)


def _slots(arguments: Namespace, configuration: Configuration, locks: Sequence[int], log: ServiceLog) -> list[WorkerSlot]:
    command = own_command("run", *repeated_arguments(arguments))
    run_directory, count, clock = configuration.notification.run_directory, configuration.worker_count, SystemClock()
    stale_after_ms = configuration.stale_after_ms
    ours = Identity(os.getpid(), str(configuration.file), clock.now(), worker_count=count, stale_after_ms=stale_after_ms)
    exits = [Exits(StatusFile(run_directory, slot), msgspec.structs.replace(ours, slot=slot), clock) for slot in range(count)]
    suspects, limit_ms = Suspects(run_directory), configuration.resequencer.handling_limit_ms
    pause_ms = configuration.restart_pause_ms
    return [WorkerSlot(command, locks, log, each, Watchdog(suspects, limit_ms), RestartPolicy(pause_ms)) for each in exits]


def _console(arguments: Namespace, configuration: Configuration, log: ServiceLog) -> SideProcess:
    command = own_command("console", *repeated_arguments(arguments))
    return SideProcess("the console", command, log, console_file(configuration.notification.run_directory))


def _beside(arguments: Namespace, configuration: Configuration, log: ServiceLog) -> list[SideProcess]:
    """Return the bridge, the delivery workers and the aggregation workers."""
    run_directory = configuration.notification.run_directory
    kinds = (
        ("delivery", "delivery", configuration.delivery.worker_count, delivery_file),
        ("aggregation", "groups", configuration.aggregation.worker_count, aggregation_file),
    )
    bridge = own_command("bridge", *repeated_arguments(arguments))
    bridges = [SideProcess("the bridge", bridge, log, bridge_file(run_directory))] if configuration.bridge.is_enabled else []
    return bridges + [
        SideProcess(
            f"{kind} worker {slot}",
            own_command(verb, "run", *repeated_arguments(arguments), "--slot", str(slot)),
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


_log = logging.getLogger("resequencer.daemon")


def add_run_arguments(parser: ArgumentParser) -> None:
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
    stop = stop_signal(arguments)
    configuration = load(arguments.config, arguments.overrides)
    refuse_unusable(configuration)
    if arguments.lifeline is None and not arguments.alone:
        return supervise_in_sight(arguments, configuration, lambda: stop.is_set)
    if arguments.alone and configuration.worker_count > 1:
        raise ConfigurationError(
            path_of(Sections, "worker_count"), "is more than 1, but `run --alone` is one process: use one or the other"
        )
    configure_logs(configuration.logging)
    faulthandler.enable()  # If native code crashes, the stack is in the log.
    faulthandler.register(THREADS, all_threads=True)
    if arguments.lifeline is None:
        acquire_locks(configuration)
    _log.info("starting with %s; run directory %s", configuration.file, configuration.notification.run_directory)
    _warn(configuration)
    process_id = os.getpid() if arguments.lifeline is None else os.getppid()
    with closing(Archiving(repeated_arguments(arguments), configuration.ingress.archive_every_ms)) as archiving:
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


def bridge(arguments: Namespace) -> ExitCode:
    """Run the bridge until SIGTERM or SIGINT. What is not acknowledged by then stays with the broker.

    Raises:
        ConfigurationError: No bridge is configured, or another one has taken the session over.
        AlreadyRunning: The bridge of this run directory runs.
    """
    stop = stop_signal(arguments)
    configuration = load(arguments.config, arguments.overrides)
    if not configuration.bridge.is_enabled:
        raise ConfigurationError(path_of(BridgeSettings, "is_enabled"), "is false: set it to true")
    refuse_unusable_bridge(configuration)
    configure_logs(configuration.logging)
    lock = RunLock(configuration.notification.run_directory, "bridge")
    lock.acquire()
    run_reporting(make_bridge(configuration, stop), lambda: stop.is_set, make_report(configuration), stop.wait)
    return ExitCode.DONE


def add_bridge_arguments(parser: ArgumentParser) -> None:
    """Add what only a supervisor gives."""
    parser.add_argument("--lifeline", type=int, help=SUPPRESS)


_START_SECONDS = 60
_STOP_SECONDS = 40
_LOOK_SECONDS = 0.1
_CONSOLE_SECONDS = 10
_LAST_WORDS = 5


def start(arguments: Namespace) -> ExitCode:
    """Start the service; return when it is ready (0) or has failed, with the reason on stderr.

    Problems that a person must fix are all reported before anything is started. An unavailable server is waited for, for a
    minute.
    """
    configuration = load(arguments.config, arguments.overrides)
    refuse_unusable(configuration)
    run_directory = configuration.notification.run_directory
    holder = find_holder(run_directory)
    if holder is not None and (running := AlreadyRunning(run_directory, holder)).is_alive:
        raise running
    if not _tell_problems(configuration):
        sys.stderr.write("resequencer: the service was not started\n")
        return ExitCode.FAILED
    return _wait_until_ready(_spawn(arguments, run_directory), configuration)


def stop(arguments: Namespace) -> ExitCode:
    """Let the service drain and end. If none runs, it is already stopped."""
    run_directory = load(arguments.config, arguments.overrides).notification.run_directory
    holder = find_holder(run_directory)
    if holder is None:
        sys.stdout.write("not running\n")
        return ExitCode.DONE
    if holder == UNKNOWN:
        lock = run_directory / LOCK
        sys.stderr.write(
            f"resequencer: the holder of {lock} could not write its process id (disk full); 'fuser {lock}' finds it\n"
        )
        return ExitCode.FAILED
    # If the supervisor is gone, its worker ends by itself.
    with suppress(ProcessLookupError):
        os.kill(int(holder), signal.SIGTERM)
    for _ in _looks(_STOP_SECONDS):
        if find_holder(run_directory) is None:
            sys.stdout.write("stopped\n")
            return ExitCode.DONE
    sys.stderr.write(f"resequencer: process {holder} has not ended within {_STOP_SECONDS} s; 'kill -9 {holder}' loses nothing\n")
    return ExitCode.FAILED


def add_restart_arguments(parser: ArgumentParser) -> None:
    """Add what only a restart takes."""
    add_archive_flag(parser)
    parser.add_argument("--rolling", action="store_true", help="one worker after another, never without one; needs two or more")


def restart(arguments: Namespace) -> ExitCode:
    """Stop, then start; or restart the workers one after another. If a start would be refused, the running service continues."""
    configuration = load(arguments.config, arguments.overrides)
    refuse_unusable(configuration)
    if not _tell_problems(configuration):
        sys.stderr.write("resequencer: the service was not restarted; the running one continues\n")
        return ExitCode.FAILED
    if arguments.rolling:
        return restart_rolling(configuration, repeated_arguments(arguments))
    code = stop(arguments)
    return code if code is not ExitCode.DONE else start(arguments)


def _tell_problems(configuration: Configuration) -> bool:
    """Report problems of the surroundings. Return False if a person must fix one of them before a start."""
    found = look_around(configuration)
    for each in (*found.refused, *(f"unavailable, the service will wait for it: {each}" for each in found.unreachable)):
        sys.stderr.write(f"resequencer: {each}\n")
    return not found.refused


def _spawn(arguments: Namespace, run_directory: Path) -> subprocess.Popen[bytes]:
    """Start the supervisor in a session of its own. Its output before it opens its log goes to the log file, too."""
    make_lasting_directory(run_directory)
    command = own_command("supervise", *repeated_arguments(arguments))
    with make_private(run_directory / NAME).open("ab") as log:
        return subprocess.Popen(  # noqa: S603 - our own command, with the arguments that were checked here.
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )


def _wait_until_ready(supervisor: subprocess.Popen[bytes], configuration: Configuration) -> ExitCode:
    run_directory = configuration.notification.run_directory
    log, report = run_directory / NAME, None
    for _ in _looks(_START_SECONDS):
        if supervisor.poll() is not None:
            return _failed(supervisor.returncode, log)
        found = find_reports(run_directory)
        if found and found[0].process_id == supervisor.pid:
            report = service_report(found, SystemClock().now(), is_running=True)
        if report is not None and report.state == State.READY:
            sys.stdout.write(f"ready: process {supervisor.pid}, log {log}\n")
            _tell_console(configuration)
            return ExitCode.DONE
    state = report.state if report is not None else State.STARTING
    why = report and (report.whole.reason or report.whole.last_exit)
    reason = f": {why}" if why else ""
    sys.stderr.write(f"resequencer: not ready within {_START_SECONDS} s, it keeps trying: {state}{reason}; log {log}\n")
    if supervisor.poll() is None:
        sys.stderr.write(f"resequencer: the service still runs; stop it with `make stop CONF={configuration.file}`\n")
    return ExitCode.FAILED


def _tell_console(configuration: Configuration) -> None:
    """Print the console's address, or why there is none. It starts beside the workers, and may need a little longer."""
    if not configuration.http.is_enabled:
        return
    run_directory = configuration.notification.run_directory
    for _ in _looks(_CONSOLE_SECONDS):
        served = find_served(run_directory, find_service(run_directory, SystemClock().now()))
        if "console" in served.http or served.http_notes:
            sys.stdout.write("".join(f"{line}\n" for line in served_lines(served)))
            return
    sys.stdout.write("console: not there yet; `status` tells its address\n")


def _failed(code: int, log: Path) -> ExitCode:
    words = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_WORDS:]
    sys.stderr.write("\n".join([f"resequencer: the service ended with {code}; the last lines of {log}:", *words]) + "\n")
    return ExitCode(code) if code in {each.value for each in ExitCode} and code else ExitCode.FAILED


def _looks(seconds: int) -> Iterator[None]:
    until = monotonic() + seconds
    while monotonic() < until:
        yield
        sleep(_LOOK_SECONDS)
