"""A storage whose answers get lost, and whose requests may arrive after their callers gave them up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import Any, NoReturn, Protocol, TypeVar

from harness.crashes.points import StruckStore
from simulation.shared_storage import SharedPartitionStore, SharedStorage

from resequencer.errors import ResequencerError
from resequencer.record import Partition
from resequencer.storage_port import Commit, StorageUnavailable

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
    """The storage as one worker sees it. If `makes_at_once`, all that it may make side by side is made before it is asked for."""

    line: StorageLine
    makes_at_once = False

    def side_by_side(self, calls: Sequence[Callable[[], Answer]]) -> Sequence[Callable[[], Answer]]:
        return [_made(each) for each in calls] if self.makes_at_once else calls

    def open(self, partition: Partition) -> StruckPartitionStore:  # type: ignore[override]
        opened = super().open
        store = self.line.ask("open", lambda: opened(partition), StorageUnavailable("no answer to open"), may_come_late=True)
        return StruckPartitionStore(store, self.line)


def _made(call: Callable[[], Answer]) -> Callable[[], Answer]:
    """Make a call, and return what makes it: the first time, it gives the outcome of the one that was made."""
    outcomes: list[Callable[[], Answer]] = []
    try:
        answer = call()
    except ResequencerError as error:
        outcomes.append(partial(_raise, error))
    else:
        outcomes.append(lambda: answer)
    return lambda: outcomes.pop()() if outcomes else call()


def _raise(error: Exception) -> NoReturn:
    raise error
