"""The shared storage, and what was committed to it in the end: the truth that the sinks are compared with."""

from __future__ import annotations

from collections.abc import Callable, Collection

from simulation.regions.sinks import Left

from guardian.pending_output import from_pending
from resequencer.record import Partition
from resequencer.storage_port import Commit
from storage.none import Memory


class WatchedMemory(Memory):
    """`committed` has all output that was ever committed. `lasting` has what was not forgotten, by partition and number."""

    def __init__(self, is_taken: Callable[[Partition, str, range, str], None]) -> None:
        super().__init__()
        self._is_taken = is_taken
        self.committed: list[Left] = []
        self.lasting: dict[Partition, dict[int, Left]] = {}

    def apply(self, partition: Partition, commit: Commit) -> None:
        before = self.partitions[partition].header
        super().apply(partition, commit)
        added = [Left(partition, from_pending(each)) for each in commit.added]
        self.committed += added
        lasting = self.lasting.setdefault(partition, {})
        for each in added:
            lasting[each.record.number] = each
        offsets = range(before.next_offset or 0, commit.next_offset)
        self._is_taken(partition, before.token, offsets, commit.source_state)

    def forgotten(self, partitions: Collection[Partition]) -> None:
        """Forget what the storage has forgotten: all output above the highest number that it knows now."""
        for each in partitions:
            kept = self.partitions.get(each)
            highest = kept.header.highest_number if kept is not None else 0
            self.lasting[each] = {number: left for number, left in self.lasting.get(each, {}).items() if number <= highest}
