"""`resequencer run`: the service in the foreground, one worker in this process."""

import logging
from argparse import Namespace

from daemon.configuration import load
from daemon.exit_code import ExitCode
from daemon.logs import configure_logs
from daemon.run_lock import RunLock
from daemon.sections import StorageType
from daemon.stop_signal import StopSignal
from daemon.worker import Worker

_log = logging.getLogger("resequencer.daemon")


def run(arguments: Namespace) -> ExitCode:
    """Until SIGTERM or SIGINT; the first drains and ends with 0, a second one ends at once."""
    configuration = load(arguments.config, arguments.overrides)
    unsupported = configuration.unsupported()
    if unsupported is not None:
        raise unsupported
    configure_logs(configuration.logging)
    for directory in {configuration.notification.run_directory, configuration.notification.output_directory}:
        RunLock(directory).acquire()
    _log.info("starting with %s; run directory %s", configuration.file, configuration.notification.run_directory)
    for warning in configuration.warnings:
        _log.warning("%s", warning)
    if configuration.resequencer.storage_type is StorageType.NONE:
        _log.warning("storage-type = none: after a crash what was not handled yet is read again, and notifications may repeat")
    stop = StopSignal()
    stop.install()
    Worker(configuration, stop.wait, lambda: stop.is_set).run()
    return ExitCode.DONE
