"""A storage that several workers share, durable but for what a test lets it forget. It passes the storages' contract."""

from collections.abc import Callable, Collection
from copy import deepcopy

from domain.record import Partition
from storage.none.memory import KeptPartition, Memory
from storage.none.storage import NonePartitionStore, NoneSettings, NoneStorage
from storage.port import Commit, Header

_EMPTY = KeptPartition(Header("", 0))


class SharedPartitionStore(NonePartitionStore):
    """Looks afresh at what is kept, each time: it may have been forgotten."""

    @property
    def _kept(self) -> KeptPartition:
        return self._memory.partitions.get(self._partition, _EMPTY)

    @_kept.setter
    def _kept(self, _: KeptPartition) -> None:
        """It is looked at afresh."""

    def commit(self, commit: Commit) -> None:
        """See that what is stored builds on what its owner knew, and not on what only looks like it after the storage forgot."""
        before, known = self._kept.header, self._header
        super().commit(commit)
        assert before.commit != commit.number - 1 or before == known, f"stored on {before}, and its owner knew {known}"


class SharedStorage(NoneStorage):
    """As one worker sees it. What one commits, all see; nothing goes with a process."""

    def __init__(self, memory: Memory, random_token: Callable[[], str]) -> None:
        super().__init__(NoneSettings(1 << 40), random_token)
        self._memory = memory

    @property
    def is_durable(self) -> bool:
        return True

    def open(self, partition: Partition) -> SharedPartitionStore:
        super().open(partition)
        return SharedPartitionStore(partition, self._memory, self._settings)

    def give_up(self, partition: Partition) -> None:
        """Nothing of it is this worker's alone."""


class Backup:
    """What a storage held at an instant."""

    def __init__(self, memory: Memory) -> None:
        self._partitions = deepcopy(memory.partitions)

    def restore(self, memory: Memory, partitions: Collection[Partition]) -> None:
        """All that came later in these is forgotten."""
        for partition in partitions:
            memory.give_up(partition)
            if partition in self._partitions:
                memory.partitions[partition] = deepcopy(self._partitions[partition])
