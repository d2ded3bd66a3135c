"""`resequencer run`: the service in the foreground, one worker in this process."""

import logging
from argparse import Namespace

from daemon.composition import refuse_unusable
from daemon.configuration import Configuration, load
from daemon.exit_code import ExitCode
from daemon.logs import configure_logs
from daemon.run_lock import RunLock
from daemon.sections import StorageType
from daemon.stop_signal import StopSignal
from daemon.worker import Worker

_log = logging.getLogger("resequencer.daemon")


def run(arguments: Namespace) -> ExitCode:
    """Until SIGTERM or SIGINT; the first drains and ends with 0, a second one ends at once."""
    stop = StopSignal()
    stop.install()
    configuration = load(arguments.config, arguments.overrides)
    unsupported = configuration.unsupported()
    if unsupported is not None:
        raise unsupported
    refuse_unusable(configuration)
    configure_logs(configuration.logging)
    _lock(configuration)
    _log.info("starting with %s; run directory %s", configuration.file, configuration.notification.run_directory)
    _warn(configuration)
    Worker(configuration, stop.wait, lambda: stop.is_set).run()
    return ExitCode.DONE


def _lock(configuration: Configuration) -> None:
    """The run directory, and what another one's configuration may name too: the output directory and the database."""
    notification = configuration.notification
    for directory in dict.fromkeys((notification.run_directory.resolve(), notification.output_directory.resolve())):
        RunLock(directory).acquire()
    database = configuration.storage.embedded_file.resolve()
    # Its directory is not made for it: one that is missing should have been mounted, and the storage says so.
    if configuration.resequencer.storage_type is StorageType.EMBEDDED and database.parent.is_dir():
        RunLock(database.parent, database.name).acquire()


def _warn(configuration: Configuration) -> None:
    for warning in configuration.warnings:
        _log.warning("%s", warning)
    if configuration.resequencer.storage_type is StorageType.NONE:
        _log.warning("storage-type = none: after a crash what was not handled yet is read again, and notifications may repeat")
