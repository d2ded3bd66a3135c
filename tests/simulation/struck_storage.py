"""A storage whose answers get lost, and whose requests may arrive after their callers gave them up."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any, Protocol, TypeVar

from harness.crashes.points import StruckStore
from simulation.shared_storage import SharedPartitionStore, SharedStorage

from domain.record import Partition
from storage.port import Commit, StorageUnavailable

Answer = TypeVar("Answer")


class StorageLine(Protocol):
    """The connection between a worker and its storage."""

    def ask(self, name: str, call: Callable[[], Answer], failure: Exception, *, may_come_late: bool = False) -> Answer:
        """Return the answer of `call`. If request or answer is lost, raise `failure`, whether or not `call` took effect."""
        ...

    def leave_on_its_way(self, call: Callable[[], object]) -> None:
        """Keep a request that its caller gave up; it may still arrive."""
        ...

    def choose(self, count: int) -> int:
        """Return a random number below `count`."""
        ...


class StruckPartitionStore(StruckStore):
    """The store as its owner sees it. An owner that got no answer knows no new header, whether the commit was stored or not."""

    def __init__(self, inner: SharedPartitionStore, line: StorageLine) -> None:
        super().__init__(inner, line, lambda: None)  # type: ignore[arg-type]  # Of the steps, `around` alone is asked for.
        self._line = line

    def commit(self, commit: Commit) -> None:
        """Commit. Now and then the request is sent twice."""
        if self._line.choose(10) == 0:
            self._line.leave_on_its_way(partial(copy(self._inner).commit, commit))
        sent = copy(self._inner)
        self._line.ask("commit", lambda: sent.commit(commit), StorageUnavailable("no answer to commit"), may_come_late=True)
        self._inner = sent

    def _around(self, name: str, call: Callable[[], Any]) -> Any:
        return self._line.ask(name, call, StorageUnavailable(f"no answer to {name}"))


class StruckSharedStorage(SharedStorage):
    """The storage as one worker sees it."""

    line: StorageLine

    def open(self, partition: Partition) -> StruckPartitionStore:  # type: ignore[override]
        opened = super().open
        store = self.line.ask("open", lambda: opened(partition), StorageUnavailable("no answer to open"), may_come_late=True)
        return StruckPartitionStore(store, self.line)
