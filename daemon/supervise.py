"""`resequencer supervise`: the service with its supervisor in the foreground; what `start` runs in the background."""

import os
import sys
from argparse import Namespace
from time import sleep

from daemon.composition import refuse_unusable
from daemon.configuration import Configuration, load
from daemon.deaths import Deaths
from daemon.exit_code import ExitCode
from daemon.locks import acquire_locks
from daemon.run_lock import AlreadyRunning
from daemon.service_log import ServiceLog
from daemon.status_file import StatusFile
from daemon.status_report import Identity
from daemon.supervisor import Supervisor
from daemon.system_clock import SystemClock
from daemon.verb import told_again

_ORPHAN_SECONDS = 15
"""The worker of a supervisor that was killed ends its cycle first; so long it may hold the locks."""
_TRY_SECONDS = 0.2


def supervise(arguments: Namespace) -> ExitCode:
    """Until SIGTERM or SIGINT; 1 if the worker cannot be kept alive, and the status says why."""
    configuration = load(arguments.config, arguments.overrides)
    refuse_unusable(configuration)
    locks = _acquire_patiently(configuration)
    run_directory = configuration.notification.run_directory
    log = ServiceLog(run_directory, configuration.logging)
    clock = SystemClock()
    deaths = Deaths(StatusFile(run_directory), Identity(os.getpid(), str(configuration.file), clock.now()), clock)
    return Supervisor([sys.executable, "-m", "daemon", "run", *told_again(arguments)], locks, log, deaths).run()


def _acquire_patiently(configuration: Configuration) -> list[int]:
    for _ in range(round(_ORPHAN_SECONDS / _TRY_SECONDS)):
        try:
            return acquire_locks(configuration)
        except AlreadyRunning as error:
            if error.is_alive:
                raise
            sleep(_TRY_SECONDS)
    return acquire_locks(configuration)
