"""Storage `embedded`: SQLite, for one machine. A commit is one record of a log, synced to the disk."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from resequencer.record import Partition
from resequencer.storage_port import Answer
from storage.embedded.database import Database
from storage.embedded.partition import EmbeddedPartitionStore, open_partition

_LOGS_BYTES = 16 * 1024 * 1024
"""What the logs of all partitions of a process may have before the database takes it over. It is in memory, too."""


class EmbeddedSettings(msgspec.Struct, frozen=True):
    """Several processes of one machine may share `file`, on a local disk. Each waits up to `busy_timeout_ms` for the others."""

    file: Path | str
    busy_timeout_ms: int = 5_000

    def __post_init__(self) -> None:
        assert self.busy_timeout_ms >= 0


class EmbeddedStorage:
    """Opens partitions in one file. The file is opened or created on first use, and then used from the same thread."""

    def __init__(self, settings: EmbeddedSettings, random_token: Callable[[], str]) -> None:
        self._random_token = random_token
        self._database = Database(Path(settings.file), settings.busy_timeout_ms)
        self._stores: dict[Partition, EmbeddedPartitionStore] = {}

    @property
    def is_durable(self) -> bool:
        return True

    def connect(self) -> None:
        with self._database.writing():
            pass

    def open(self, partition: Partition) -> EmbeddedPartitionStore:
        self.give_up(partition)
        store = open_partition(self._database, partition, self._random_token(), self._room)
        self._stores[partition] = store
        return store

    def side_by_side(self, calls: Sequence[Callable[[], Answer]]) -> Sequence[Callable[[], Answer]]:
        """Make none of them yet: there is one disk."""
        return calls

    def give_up(self, partition: Partition) -> None:
        """Forget what of the partition is in memory. The log has it; the next owner reads it there."""
        store = self._stores.pop(partition, None)
        if store is not None:
            store.close()

    def close(self) -> None:
        """End in the database alone: what a log has goes there. If that fails, the next start reads the log."""
        with ExitStack() as stack:
            stack.callback(self._database.close)
            for store in self._stores.values():
                stack.callback(store.end)
            self._stores.clear()

    def _room(self) -> int:
        return _LOGS_BYTES // max(1, len(self._stores))
