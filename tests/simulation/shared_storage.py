"""A storage that several workers share. It is durable except for what a test makes it forget. It passes the contract."""

from collections.abc import Callable, Collection
from copy import deepcopy

from resequencer.record import Partition
from resequencer.storage_port import Commit, Header
from storage.none import KeptPartition, Memory, NonePartitionStore, NoneSettings, NoneStorage

_EMPTY = KeptPartition(Header("", 0))


class SharedPartitionStore(NonePartitionStore):
    """Reads the kept partition anew each time, because the storage may have forgotten it."""

    @property
    def _kept(self) -> KeptPartition:
        return self._memory.partitions.get(self._partition, _EMPTY)

    @_kept.setter
    def _kept(self, _: KeptPartition) -> None:
        """Do nothing: each read gets the kept partition anew."""

    def commit(self, commit: Commit) -> None:
        """Commit, and check that it builds on the header that its owner knew, not on a similar one after the storage forgot."""
        before, known = self._kept.header, self._header
        super().commit(commit)
        assert before.commit != commit.number - 1 or before == known, f"stored on {before}, and its owner knew {known}"


class SharedStorage(NoneStorage):
    """The storage as one worker sees it. All workers see every commit, and nothing is lost when a worker dies."""

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
        """Do nothing: the partition's data is shared by all workers."""


class Backup:
    """The contents of a storage at an instant."""

    def __init__(self, memory: Memory) -> None:
        self._partitions = deepcopy(memory.partitions)

    def restore(self, memory: Memory, partitions: Collection[Partition]) -> None:
        """Forget everything that came later in these partitions."""
        for partition in partitions:
            memory.give_up(partition)
            if partition in self._partitions:
                memory.partitions[partition] = deepcopy(self._partitions[partition])
