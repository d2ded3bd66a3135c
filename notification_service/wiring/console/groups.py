"""The groups of this machine's service, as the console reads them."""

import logging
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from threading import Lock
from weakref import finalize

from notification_service.aggregation.commands import CommandWriter
from notification_service.aggregation.completions import CompletionsLog
from notification_service.aggregation.view import StoreView
from notification_service.configuration.configuration import Configuration
from notification_service.status.aggregation import AggregationStatus
from notification_service.supervision.run_lock import AlreadyRunning, RunLock
from notification_service.supervision.running_service import find_service
from notification_service.supervision.system_clock import SystemClock
from notification_service.wiring.aggregation.status import find_aggregation_of
from notification_service.wiring.aggregation.stores import open_commands, open_completions, open_copies, open_view, stores_of

_log = logging.getLogger("resequencer.console")
_DIRECTORY = "console"


class LocalGroups:
    """A `GroupSource`. The directory is in that of the store; a second console beside it has a temporary one."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._names = next(stores_of(configuration))
        self._lock = Lock()
        self._claimed: Path | None = None
        self._held: RunLock | None = None

    def claim(self) -> Path:
        """As `GroupSource.claim`.

        Raises:
            DirectoryUnusable: Nothing can be written there.
        """
        with self._lock:
            if self._claimed is None:
                self._claimed = self._claim()
            return self._claimed

    def open_view(self) -> StoreView:
        return open_view(self._configuration, self._names, self.claim())

    def open_copies(self) -> StoreView:
        return open_copies(self._configuration, self._names, self.claim())

    def open_commands(self) -> CommandWriter:
        return open_commands(self._configuration, self._names)

    def open_completions(self) -> CompletionsLog:
        return open_completions(self._configuration, self._names)

    def find_status(self) -> AggregationStatus:
        run_directory = self._configuration.notification.run_directory
        return find_aggregation_of(self._configuration, find_service(run_directory, SystemClock().now()))

    def _claim(self) -> Path:
        directory = self._names.directory / _DIRECTORY
        lock = RunLock(directory, is_private=True)
        try:
            lock.acquire()
        except AlreadyRunning as error:
            other = mkdtemp(prefix="resequencer-groups-")
            finalize(self, rmtree, other, ignore_errors=True)
            _log.warning("%s. This console reads the groups into %s, and deletes that at its end", error, other)
            return Path(other)
        self._held = lock
        return directory
