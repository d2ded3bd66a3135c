"""Embedded storages that share one file."""

from contextlib import suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from resequencer.storage_port import Commit, PartitionStore, StorageUnavailable
from storage.embedded.storage import EmbeddedSettings, EmbeddedStorage
from storage.embedded.view import EmbeddedStorageView


def memory_directory() -> TemporaryDirectory[str]:
    """A directory in main memory, if the system has one: tests that sync thousands of times need not wait for the disk."""
    return TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)


class EmbeddedHarness:
    """Each `make` opens a connection of its own, as another process would."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "state.db"
        self.tokens = count()
        self.made: list[EmbeddedStorage] = []

    def make(self) -> EmbeddedStorage:
        storage = EmbeddedStorage(EmbeddedSettings(self.file, 500), lambda: f"token-{next(self.tokens)}")
        self.made.append(storage)
        return storage

    def make_view(self) -> EmbeddedStorageView:
        return EmbeddedStorageView(self.file)

    def dump(self) -> dict[str, bytes]:
        """The files but the index of the log, in which readers note how far they read."""
        files = self.file.parent.iterdir()
        return {each.name: each.read_bytes() for each in files if not each.name.endswith("-shm")}

    def commit_unanswered(self, store: PartitionStore, commit: Commit) -> None:
        log, append = store._log, store._log.append

        def losing_the_answer(record: bytes) -> None:
            end = log.end
            append(record)
            log.end = end
            raise StorageUnavailable("the answer was lost")

        with patch.object(log, "append", losing_the_answer), suppress(StorageUnavailable):
            store.commit(commit)

    def close(self) -> None:
        for storage in self.made:
            storage.close()
