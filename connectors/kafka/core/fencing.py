"""Which partitions are ours to read and to publish for, by what the group says and what was last seen of their positions. Pure.

Steps 2 to 4 of the protocol (docs/decisions/0004-exactly-once.md). A group may take a partition away and give it back without
telling: what tells is a position that somebody else has moved. So a position is looked at again whenever the group has
changed, and a partition is not read, nor published for, before it was.
"""

from collections.abc import Collection
from typing import NamedTuple

from domain.record import Partition


class Membership(NamedTuple):
    """Who we are in the group. `generation` counts its rebalances; the brokers refuse an old one."""

    generation: int
    member: str
    instance: str | None


class Snapshot(NamedTuple):
    """What the group says at an instant at which it is stable."""

    membership: Membership
    assigned: frozenset[Partition]


class Committed(NamedTuple):
    """A committed position as it is stored."""

    offset: int
    metadata: str


class _Known(NamedTuple):
    position: Committed | None
    membership: Membership


class Fencing:
    """Keeps, for each partition, the position that was last read or written and under which membership that was."""

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None
        self._known: dict[Partition, _Known] = {}
        self._sought: set[Partition] = set()
        self._lost: set[Partition] = set()

    @property
    def membership(self) -> Membership | None:
        return self.snapshot.membership if self.snapshot else None

    @property
    def sought(self) -> frozenset[Partition]:
        """Those that are to be read, readable at this instant or not."""
        return frozenset(self._sought)

    def assignment(self) -> list[Partition]:
        """What is ours, ascending; what was lost is left out once, so that it is dropped."""
        assigned = self.snapshot.assigned if self.snapshot else frozenset()
        ours = sorted(assigned - self._lost)
        self._lost.clear()
        return ours

    def note_group(self, snapshot: Snapshot | None, disturbed: Collection[Partition]) -> None:
        """After each poll. `snapshot` is None while the group is not stable, `disturbed` what the client said was taken away or
        given to us since the last time.
        """
        for partition in disturbed:
            self.lose(partition)
        if snapshot is None and self.snapshot is not None:
            # Whose they are will be known once the group is stable again.
            snapshot = self.snapshot._replace(assigned=self.snapshot.assigned.difference(disturbed))
        self.snapshot = snapshot
        assigned = self.snapshot.assigned if self.snapshot else frozenset()
        # It stays lost until it was told: what is taken away and given back between two looks must not seem to be kept.
        for partition in self._known.keys() - assigned:
            self.lose(partition)

    def suspects(self) -> list[Partition]:
        """Those whose position has to be looked at again before they are read or published for."""
        return sorted(each for each, known in self._known.items() if known.membership != self.membership)

    def is_readable(self, partition: Partition) -> bool:
        return partition in self._sought and self.is_ours(partition)

    def is_ours(self, partition: Partition) -> bool:
        """Its position was read or written by us in the group as it is now, and it has not been lost since."""
        known = self._known.get(partition)
        return known is not None and known.membership == self.membership

    def find_position(self, partition: Partition) -> Committed | None:
        """What was last read or written of it, None if there was none."""
        known = self._known.get(partition)
        return known.position if known else None

    def is_known(self, partition: Partition) -> bool:
        return partition in self._known

    def note_position(self, partition: Partition, position: Committed | None) -> None:
        """It was read, for a takeover, or written."""
        if self.snapshot is not None and partition in self.snapshot.assigned and partition not in self._lost:
            self._known[partition] = _Known(position, self.snapshot.membership)

    def compare(self, partition: Partition, position: Committed | None) -> bool:
        """It was read again: whether nobody else has moved it. If somebody has, it is lost."""
        is_same = partition in self._known and self._known[partition].position == position
        if is_same:
            self.note_position(partition, position)
        else:
            self.lose(partition)
        return is_same

    def note_sought(self, partition: Partition) -> bool:
        """To be read from now on; whether it is ours."""
        if self.is_ours(partition):
            self._sought.add(partition)
        return partition in self._sought

    def lose(self, partition: Partition) -> None:
        """Somebody else may have owned it: it has to be taken over anew. Harmless for one that we know nothing of."""
        if self._known.pop(partition, None) is not None or partition in self._sought:
            self._lost.add(partition)
        self._sought.discard(partition)

    def not_owned(self, partitions: Collection[Partition]) -> list[Partition]:
        """Those of them that are not ours."""
        return sorted(each for each in partitions if not self.is_ours(each))
