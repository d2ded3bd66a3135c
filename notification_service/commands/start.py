"""`resequencer start | stop | restart`: the service as a daemon."""

import os
import signal
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

from notification_service.commands.check import look_around
from notification_service.commands.command import told_again
from notification_service.configuration.configuration import Configuration, load
from notification_service.status.report import State
from notification_service.status.service_report import find_reports, service_report
from notification_service.status.text import served_lines
from notification_service.supervision.exit_code import ExitCode
from notification_service.supervision.locks import NAME as LOCK
from notification_service.supervision.locks import UNKNOWN, AlreadyRunning, find_holder, find_service
from notification_service.supervision.service_log import NAME
from notification_service.supervision.service_process import own_command
from notification_service.supervision.system_clock import SystemClock
from notification_service.wiring.composition import refuse_unusable
from notification_service.wiring.console.served import find_served
from storage.private_file import make_lasting_directory, make_private

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
        return ExitCode.NOT_SO
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
        return ExitCode.NOT_SO
    # If the supervisor is gone, its worker ends by itself.
    with suppress(ProcessLookupError):
        os.kill(int(holder), signal.SIGTERM)
    for _ in _looks(_STOP_SECONDS):
        if find_holder(run_directory) is None:
            sys.stdout.write("stopped\n")
            return ExitCode.DONE
    sys.stderr.write(f"resequencer: process {holder} has not ended within {_STOP_SECONDS} s; 'kill -9 {holder}' loses nothing\n")
    return ExitCode.NOT_SO


def restart(arguments: Namespace) -> ExitCode:
    """Stop, then start. If a start would be refused, the running service is left alone."""
    configuration = load(arguments.config, arguments.overrides)
    refuse_unusable(configuration)
    if not _tell_problems(configuration):
        sys.stderr.write("resequencer: the service was not restarted; the running one goes on\n")
        return ExitCode.NOT_SO
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
    command = own_command("supervise", *told_again(arguments))
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
    return ExitCode.NOT_SO


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
    return ExitCode(code) if code in {each.value for each in ExitCode} and code else ExitCode.NOT_SO


def _looks(seconds: int) -> Iterator[None]:
    until = monotonic() + seconds
    while monotonic() < until:
        yield
        sleep(_LOOK_SECONDS)
