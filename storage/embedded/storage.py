"""Storage `embedded`: SQLite, for one machine. A commit is one transaction, synced to the disk."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from domain.record import Partition
from storage.embedded.database import Database
from storage.embedded.partition import EmbeddedPartitionStore, take


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

    @property
    def is_durable(self) -> bool:
        return True

    def connect(self) -> None:
        with self._database.writing():
            pass

    def open(self, partition: Partition) -> EmbeddedPartitionStore:
        with self._database.writing() as connection:
            key, header = take(connection, partition, self._random_token())
        return EmbeddedPartitionStore(self._database, key, header)

    def give_up(self, partition: Partition) -> None:
        """Do nothing: no partition is kept in memory."""

    def close(self) -> None:
        self._database.close()
