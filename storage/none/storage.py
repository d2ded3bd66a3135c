"""Storage `none`: the units' states are in the process's memory only, within bounds, and are lost with the process."""

from collections.abc import Callable, Collection, Container, Mapping, Sequence

import msgspec

from resequencer.record import Partition
from resequencer.storage_port import Answer, Commit, Header, Pending, Snapshot, Waits
from storage.fencing import advanced, check_owner, is_done, succeeded
from storage.none.memory import Memory

EXPIRED_PER_CALL = 1_000


class NoneSettings(msgspec.Struct, frozen=True):
    """`max_bytes` bounds the memory of idle units. Beyond it `expire` removes the units that changed longest ago."""

    max_bytes: int

    def __post_init__(self) -> None:
        assert self.max_bytes >= 0


class NonePartitionStore:
    """A partition's units for one owner in the process. A later `open` in the same process fences this owner off."""

    def __init__(self, partition: Partition, memory: Memory, settings: NoneSettings) -> None:
        self._partition = partition
        self._memory = memory
        self._settings = settings
        self._kept = memory.partitions[partition]
        self._header = self._kept.header

    @property
    def header(self) -> Header:
        return self._header

    def load(self, units: Collection[str]) -> Mapping[str, Snapshot]:
        check_owner(self._kept.last_commit, self._header)
        return {unit: self._kept.snapshot(unit) for unit in units if unit in self._kept.units}

    def waiting(self) -> Sequence[tuple[str, Waits]]:
        check_owner(self._kept.last_commit, self._header)
        return list(self._kept.waiting.items())

    def pending(self) -> Sequence[Pending]:
        check_owner(self._kept.last_commit, self._header)
        return [Pending(number, body) for number, body in sorted(self._kept.pending.items())]

    def commit(self, commit: Commit) -> None:
        if not is_done(self._kept.last_commit, self._header, commit):
            self._memory.apply(self._partition, commit)
        self._header = advanced(self._header, commit)

    def expire(self, until: int, spared: Container[str]) -> int:
        """Remove expired units as the port requires; if `max_bytes` is exceeded, also younger units."""
        check_owner(self._kept.last_commit, self._header)
        excess = self._memory.excess(self._partition, self._settings.max_bytes)
        return self._memory.expire(self._partition, until, excess, spared, EXPIRED_PER_CALL)


class NoneStorage:
    """Passes the same contract suite as the durable storages, as long as the process lives."""

    def __init__(self, settings: NoneSettings, random_token: Callable[[], str]) -> None:
        self._settings = settings
        self._random_token = random_token
        self._memory = Memory()

    @property
    def is_durable(self) -> bool:
        return False

    def connect(self) -> None:
        """Do nothing: the memory is always available."""

    def open(self, partition: Partition) -> NonePartitionStore:
        kept = self._memory.partitions.get(partition)
        self._memory.take(partition, succeeded(kept.header if kept else None, self._random_token()))
        return NonePartitionStore(partition, self._memory, self._settings)

    def side_by_side(self, calls: Sequence[Callable[[], Answer]]) -> Sequence[Callable[[], Answer]]:
        """Make none of them yet: they take no time."""
        return calls

    def give_up(self, partition: Partition) -> None:
        self._memory.give_up(partition)

    def close(self) -> None:
        """Do nothing: the memory ends with the process."""
