"""Storage `whole-file`: the contract on a real file."""

from itertools import count
from pathlib import Path

import pytest

from resequencer.storage_port import Commit, PartitionStore
from storage.whole_file import WholeFileStorage
from tests.storage.contract import StorageContract


class WholeFileHarness:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._tokens = count()

    def make(self) -> WholeFileStorage:
        return WholeFileStorage(self._path, lambda: f"token-{next(self._tokens)}")

    def commit_unanswered(self, store: PartitionStore, commit: Commit) -> None:
        before = store.header
        store.commit(commit)
        store._header = before


class TestWholeFileContract(StorageContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> WholeFileHarness:
        return WholeFileHarness(tmp_path / "state.msgpack")
