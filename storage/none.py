"""Storage `none`: the units' states are in the process's memory only, within bounds, and are lost with the process."""

from collections import OrderedDict
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from resequencer.record import Partition
from resequencer.storage_port import Answer, Commit, Header, Pending, Snapshot, StashEntry, UnitChange, Waits
from storage.fencing import LastCommit, advanced, check_owner, is_done, succeeded


class KeptUnit(msgspec.Struct, frozen=True, gc=False):
    """The parts that every unit has. Most units have no stash and wait for nothing.

    Bytes cannot be part of reference cycles, so the collector need not visit a million of these.
    """

    state: bytes
    data: bytes | None


_UNIT_BYTES = 300
"""About the memory of a unit beside its name, state and data, as measured, including its table entries."""


@dataclass(slots=True)
class KeptPartition:
    """A partition after its last commit. Only `Memory` changes it.

    `idle` maps the units in which nothing waits to the caught-up clock of their last change, in the order of these changes.
    `idle_bytes` is about their size in memory.
    """

    header: Header
    attempt: str | None = None
    units: dict[str, KeptUnit] = field(default_factory=dict)
    stashes: dict[str, dict[int, bytes]] = field(default_factory=dict)
    waiting: dict[str, Waits] = field(default_factory=dict)
    pending: dict[int, bytes] = field(default_factory=dict)
    idle: OrderedDict[str, int] = field(default_factory=OrderedDict)
    idle_bytes: int = 0

    @property
    def last_commit(self) -> LastCommit:
        return LastCommit(self.header.token, self.header.commit, self.attempt)

    def snapshot(self, unit: str) -> Snapshot:
        kept = self.units[unit]
        stash = sorted(self.stashes.get(unit, {}).items())
        return Snapshot(unit, kept.state, kept.data, tuple(StashEntry(*entry) for entry in stash))

    def size(self, unit: str) -> int:
        """About the bytes of a unit in memory, without its stash."""
        kept = self.units[unit]
        return _UNIT_BYTES + len(unit) + len(kept.state) + len(kept.data or b"")

    def forget(self, unit: str) -> None:
        """Remove a unit in which nothing waits."""
        self.idle_bytes -= self.size(unit)
        del self.units[unit], self.idle[unit]
        self.stashes.pop(unit, None)


class Memory:
    """The partitions of a process."""

    def __init__(self) -> None:
        self.partitions: dict[Partition, KeptPartition] = {}

    def take(self, partition: Partition, header: Header) -> None:
        """Set the header of a new owner."""
        kept = self.partitions.setdefault(partition, KeptPartition(header))
        kept.header, kept.attempt = header, None

    def give_up(self, partition: Partition) -> None:
        """Remove the partition with all its units."""
        self.partitions.pop(partition, None)

    def apply(self, partition: Partition, commit: Commit) -> None:
        """Apply all of the commit or nothing: everything that can fail on an invalid change happens before the first change."""
        kept = self.partitions[partition]
        stashed = {
            each.unit: {entry.offset: entry.body for entry in each.stash_added} for each in commit.changes if each.stash_added
        }
        added = {pending.number: pending.body for pending in commit.added}
        for change in commit.changes:
            self._change(kept, change, stashed.get(change.unit), commit.caught_up_ms)
        kept.pending.update(added)
        for number in [each for each in kept.pending if each <= commit.published]:
            del kept.pending[number]
        kept.header, kept.attempt = advanced(kept.header, commit), commit.attempt

    def excess(self, partition: Partition, max_bytes: int) -> int:
        """Return how many bytes the idle units of the partition exceed its share of `max_bytes`."""
        idle_bytes = self.partitions[partition].idle_bytes
        all_bytes = sum(kept.idle_bytes for kept in self.partitions.values())
        return idle_bytes - max_bytes * idle_bytes // all_bytes if all_bytes > max_bytes else 0

    def expire(self, partition: Partition, until: int, excess: int, spared: Container[str], at_most: int) -> int:
        """Remove the idle units that changed longest ago, except `spared`, and return how many were removed.

        These are the units that last changed at `until` or before, and in any case as many as hold `excess` bytes.
        """
        kept = self.partitions[partition]
        gone: list[str] = []
        for unit, changed_at in kept.idle.items():
            if len(gone) == at_most or (changed_at > until and excess <= 0):
                break
            if unit not in spared:
                gone.append(unit)
                excess -= kept.size(unit)
        for unit in gone:
            kept.forget(unit)
        return len(gone)

    def _change(
        self, kept: KeptPartition, change: UnitChange, stash_added: Mapping[int, bytes] | None, caught_up_ms: int
    ) -> None:
        unit, data = change.unit, change.data
        if kept.idle.pop(unit, None) is not None:
            kept.idle_bytes -= kept.size(unit)
        if data is None and (known := kept.units.get(unit)):
            data = known.data
        kept.units[unit] = KeptUnit(change.state, data)
        if stash_added or change.stash_removed:
            stash = kept.stashes.setdefault(unit, {})
            for offset in change.stash_removed:
                stash.pop(offset, None)
            stash.update(stash_added or {})
            if not stash:
                del kept.stashes[unit]
        if change.waits is not None:
            kept.waiting[unit] = change.waits
            return
        kept.waiting.pop(unit, None)
        kept.idle[unit] = caught_up_ms
        kept.idle_bytes += kept.size(unit)


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

    def has_units(self) -> bool:
        check_owner(self._kept.last_commit, self._header)
        return bool(self._kept.units)

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
