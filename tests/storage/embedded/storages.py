"""Embedded storages that share one file."""

from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from storage.embedded.storage import EmbeddedSettings, EmbeddedStorage
from storage.embedded.view import EmbeddedStorageView
from storage.port import Commit, PartitionStore


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
        before = store.header
        store.commit(commit)
        store._header = before

    def close(self) -> None:
        for storage in self.made:
            storage.close()
