"""The view of the Infinispan storage: each partition from its counter, by GET requests only."""

from resequencer.record import Partition
from resequencer.storage_port import Header
from storage.infinispan.keys import PageMemory, PartitionKeys
from storage.infinispan.partition_view import PartitionView
from storage.infinispan.port import Cache
from storage.view_port import UnitView, WaitingChanges

_MEMORY_BYTES = 16 * 2**20


class InfinispanStorageView:
    """Holds 8 to 16 bytes for each unit of the partitions in which a unit was looked up. The cache is not set up."""

    def __init__(self, cache: Cache, namespace: str) -> None:
        self._cache = cache
        self._namespace = namespace
        self._memory = PageMemory(_MEMORY_BYTES)
        self._partitions: dict[Partition, PartitionView] = {}

    def find_header(self, partition: Partition) -> Header | None:
        return self._view_of(partition).find_header()

    def find_unit(self, partition: Partition, unit: str) -> UnitView | None:
        return self._view_of(partition).find_unit(unit)

    def find_waiting(self, partition: Partition, marker: str | None) -> WaitingChanges | None:
        return self._view_of(partition).find_waiting(marker)

    def close(self) -> None:
        self._cache.close()
        self._partitions.clear()

    def _view_of(self, partition: Partition) -> PartitionView:
        if partition not in self._partitions:
            link = PartitionKeys(self._cache, self._namespace, partition, self._memory)
            self._partitions[partition] = PartitionView(link, self._memory)
        return self._partitions[partition]
