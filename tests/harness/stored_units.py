"""Units in an embedded storage of their own, as a service's turns leave them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

from harness.driving import PARTITION, Driven

from resequencer.record import Partition
from resequencer.storage_port import Commit, PartitionStore, StashEntry, UnitChange, Waits
from storage.embedded.storage import EmbeddedSettings, EmbeddedStorage
from storage.embedded.view import EmbeddedStorageView


class StoredUnits:
    """Commits changes of units. A program opens views of them meanwhile."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "state.db"
        self._storage = EmbeddedStorage(EmbeddedSettings(self.file, 500), lambda: "token")
        self._stores: dict[Partition, PartitionStore] = {}
        self._attempts = count()

    @property
    def open_view(self) -> Callable[[], EmbeddedStorageView]:
        return lambda: EmbeddedStorageView(self.file)

    def commit(self, *changes: UnitChange, partition: Partition = PARTITION) -> None:
        if partition not in self._stores:
            self._stores[partition] = self._storage.open(partition)
        store = self._stores[partition]
        number = store.header.commit + 1
        store.commit(Commit(number, f"attempt-{next(self._attempts)}", number, 0, changes=changes))

    def put(self, unit: str, state: bytes, waits: Waits | None, *stash: StashEntry, partition: Partition = PARTITION) -> None:
        """Store a unit with these bytes, whatever they are."""
        self.commit(UnitChange(unit, state, waits, stash), partition=partition)

    def keep(self, driven: Driven) -> None:
        """Store what the last turn of a driven unit decided."""
        assert driven.last is not None
        assert driven.last.change is not None
        self.commit(driven.last.change)

    def close(self) -> None:
        self._storage.close()
