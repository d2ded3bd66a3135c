"""The locks of a service: on its run directory, its output directory, its facts, its database, and its input directory."""

import logging

from notification_service.configuration.configuration import Configuration
from notification_service.configuration.sections import StorageType, TransportType
from notification_service.supervision.input_lock import InputLock
from notification_service.supervision.run_lock import RunLock
from storage.private_file import narrow_run_directory

_log = logging.getLogger("resequencer.daemon")


def acquire_locks(configuration: Configuration) -> list[int]:
    """Acquire all locks and return their descriptors; they are held while any process has one of each open.

    The directories of output, facts and input and the database may be named by another service's configuration too.

    Then what is private in the run directory is narrowed, if an earlier version or another program made it wider.

    Raises:
        AlreadyRunning: Another service holds one of them; none is held then.
        DirectoryUnusable: A directory cannot be made or written.
    """
    notification = configuration.notification
    locks: list[RunLock | InputLock] = [
        RunLock(each) for each in dict.fromkeys((notification.run_directory.resolve(), notification.output_directory.resolve()))
    ]
    database = configuration.storage.embedded_file.resolve()
    # Its directory is not created: a missing directory is probably not mounted, and the storage reports it.
    if configuration.resequencer.storage_type is StorageType.EMBEDDED and database.parent.is_dir():
        locks.append(RunLock(database.parent, database.name))
    if configuration.ingress.transport is TransportType.FILE:
        locks.append(InputLock(configuration.ingress.file_directory.resolve()))
    if notification.transport is TransportType.FILE and configuration.aggregation.is_enabled:
        # Beside the directory, for what is in it is input of another program.
        facts = configuration.aggregation.facts_directory.resolve()
        locks.append(RunLock(facts.parent, facts.name))
    try:
        descriptors = [descriptor for each in locks if (descriptor := each.acquire()) is not None]
    except BaseException:
        for each in locks:
            each.release()
        raise
    for wide in narrow_run_directory(notification.run_directory):
        _log.warning("others may read %s, and its rights cannot be changed: it is another user's; give it to this one", wide)
    return descriptors
