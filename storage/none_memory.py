"""What storage `none` keeps in the process: the units of all partitions, and which of them go first."""

from collections import OrderedDict
from dataclasses import dataclass, field

import msgspec

from domain.clock import Instant
from domain.record import Partition
from storage.ownership import LastCommit, advanced
from storage.port import Commit, Header, Snapshot, StashEntry, UnitChange, Waits


class KeptUnit(msgspec.Struct, frozen=True, gc=False):
    """The parts of a unit that every unit has; most have no stash and wait for nothing.

    Bytes alone make no cycles: the collector need not visit a million of these.
    """

    state: bytes
    payment_data: bytes | None


@dataclass(slots=True)
class KeptPartition:
    """A partition as the commits left it. Changed by `Memory` alone."""

    header: Header
    attempt: str | None = None
    units: dict[str, KeptUnit] = field(default_factory=dict)
    stashes: dict[str, dict[int, bytes]] = field(default_factory=dict)
    waiting: dict[str, Waits] = field(default_factory=dict)
    pending: dict[int, bytes] = field(default_factory=dict)

    @property
    def last_commit(self) -> LastCommit:
        return LastCommit(self.header.token, self.header.commit, self.attempt)

    def snapshot(self, unit: str) -> Snapshot:
        kept = self.units[unit]
        stash = sorted(self.stashes.get(unit, {}).items())
        return Snapshot(unit, kept.state, kept.payment_data, tuple(StashEntry(*entry) for entry in stash))

    def forget(self, unit: str) -> None:
        del self.units[unit]
        self.stashes.pop(unit, None)


class Memory:
    """All partitions of a process, and their idle units in the order in which they last changed."""

    def __init__(self) -> None:
        self.partitions: dict[Partition, KeptPartition] = {}
        self._idle: OrderedDict[tuple[str, int, str], Instant] = OrderedDict()

    def take(self, partition: Partition, header: Header) -> None:
        """Put the partition under a new owner's header."""
        kept = self.partitions.setdefault(partition, KeptPartition(header))
        kept.header, kept.attempt = header, None

    def release(self, partition: Partition) -> None:
        """Forget all of it."""
        kept = self.partitions.pop(partition, None)
        for unit in kept.units if kept else ():
            self._idle.pop((*partition, unit), None)

    def apply(self, partition: Partition, commit: Commit) -> None:
        """All of the commit or nothing: what can fail on an impossible change happens before the first one is kept."""
        kept = self.partitions[partition]
        changes = [(each, {entry.offset: entry.body for entry in each.stash_added}) for each in commit.changes]
        added = {pending.number: pending.body for pending in commit.added}
        for change, stash_added in changes:
            self._change(kept, change, stash_added)
            self._file(kept, partition, change)
        kept.pending.update(added)
        for number in [each for each in kept.pending if each <= commit.published]:
            del kept.pending[number]
        kept.header, kept.attempt = advanced(kept.header, commit), commit.attempt

    def trim(self, max_units: int) -> None:
        """Forget the idle units that changed longest ago until `max_units` are left, or only waiting ones."""
        surplus = len(self._idle) + sum(len(kept.waiting) for kept in self.partitions.values()) - max_units
        for _ in range(min(surplus, len(self._idle))):
            self._forget_oldest()

    def expire(self, until: Instant, at_most: int) -> int:
        """Forget idle units that last changed at `until` or before; how many went."""
        for count in range(at_most):
            if not self._idle or next(iter(self._idle.values())) > until:
                return count
            self._forget_oldest()
        return at_most

    def _change(self, kept: KeptPartition, change: UnitChange, stash_added: dict[int, bytes]) -> None:
        payment_data = change.payment_data
        if payment_data is None and (known := kept.units.get(change.unit)):
            payment_data = known.payment_data
        kept.units[change.unit] = KeptUnit(change.state, payment_data)
        if stash_added or change.stash_removed:
            stash = kept.stashes.setdefault(change.unit, {})
            for offset in change.stash_removed:
                stash.pop(offset, None)
            stash.update(stash_added)
            if not stash:
                del kept.stashes[change.unit]

    def _file(self, kept: KeptPartition, partition: Partition, change: UnitChange) -> None:
        # Flat, for the collector lets go of a tuple of strings and numbers, too.
        key = (*partition, change.unit)
        self._idle.pop(key, None)
        if change.waits is None:
            kept.waiting.pop(change.unit, None)
            self._idle[key] = change.changed_at
        else:
            kept.waiting[change.unit] = change.waits

    def _forget_oldest(self) -> None:
        (topic, number, unit), _ = self._idle.popitem(last=False)
        self.partitions[Partition(topic, number)].forget(unit)
