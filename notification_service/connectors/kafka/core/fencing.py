"""Decides which partitions this worker may read and publish for. Pure.

Steps 2 to 4 of the protocol (docs/decisions/0004-exactly-once.md). The decision rests on the group's assignment and on the
positions last seen. A group may take a partition away and give it back without a notice to this worker; a position that
another worker has moved shows it. So after every change of the group, a partition's position is read again before the
partition is read or published for.
"""

import logging
from collections import deque
from collections.abc import Collection, Mapping
from typing import NamedTuple

from resequencer.clock import Instant, instant_text
from resequencer.record import Partition


class Membership(NamedTuple):
    """This worker's membership in the group. `generation` counts the group's rebalances; the brokers refuse an old one."""

    generation: int
    member: str
    instance: str | None


FIXED = Membership(-1, "", None)
"""Of a worker that reads fixed partitions without a group. So brokers know offsets from outside of the group."""


class Snapshot(NamedTuple):
    """The group's assignment at an instant at which the group is stable."""

    membership: Membership
    assigned: frozenset[Partition]


class Committed(NamedTuple):
    """A committed offset with its metadata, as the brokers store it."""

    offset: int
    metadata: str


class _Known(NamedTuple):
    position: Committed | None
    membership: Membership


class Fencing:
    """Keeps the last known position of each partition, and the membership under which it was read or written."""

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
        """The partitions to read, whether they are readable at this instant or not."""
        return frozenset(self._sought)

    def assignment(self) -> list[Partition]:
        """Return the partitions of this worker, ascending. A lost one is missing once, so that the caller drops it."""
        assigned = self.snapshot.assigned if self.snapshot else frozenset()
        ours = sorted(assigned - self._lost)
        self._lost.clear()
        return ours

    def note_group(self, snapshot: Snapshot | None, disturbed: Collection[Partition]) -> None:
        """Take note of the group after each poll.

        `snapshot` is None while the group is not stable. `disturbed` are the partitions revoked or assigned since the last call.
        """
        for partition in disturbed:
            self.lose(partition)
        if snapshot is None and self.snapshot is not None:
            # The owner of disturbed partitions is known once the group is stable again.
            snapshot = self.snapshot._replace(assigned=self.snapshot.assigned.difference(disturbed))
        self.snapshot = snapshot
        assigned = self.snapshot.assigned if self.snapshot else frozenset()
        # A partition revoked and assigned again between two calls of `assignment` must not seem to have been kept.
        for partition in self._known.keys() - assigned:
            self.lose(partition)

    def suspects(self) -> list[Partition]:
        """Return the partitions whose position has to be read again before they are read or published for."""
        return sorted(each for each, known in self._known.items() if known.membership != self.membership)

    def is_readable(self, partition: Partition) -> bool:
        return partition in self._sought and self.is_ours(partition)

    def is_ours(self, partition: Partition) -> bool:
        """Return whether this worker read or wrote the position under the current membership and has not lost it since."""
        known = self._known.get(partition)
        return known is not None and known.membership == self.membership

    def find_position(self, partition: Partition) -> Committed | None:
        """Return the position last read or written; None if there was none."""
        known = self._known.get(partition)
        return known.position if known else None

    def is_known(self, partition: Partition) -> bool:
        return partition in self._known

    def note_position(self, partition: Partition, position: Committed | None) -> None:
        """Store a position that was read for a takeover, or written."""
        if self.snapshot is not None and partition in self.snapshot.assigned and partition not in self._lost:
            self._known[partition] = _Known(position, self.snapshot.membership)

    def compare(self, partition: Partition, position: Committed | None) -> bool:
        """Store a position that was read again; return whether it is unchanged. If it changed, the partition is lost."""
        is_same = partition in self._known and self._known[partition].position == position
        if is_same:
            self.note_position(partition, position)
        else:
            self.lose(partition)
        return is_same

    def note_sought(self, partition: Partition) -> bool:
        """Mark the partition to be read from now on, if this worker owns it; return whether it is marked."""
        if self.is_ours(partition):
            self._sought.add(partition)
        return partition in self._sought

    def lose(self, partition: Partition) -> None:
        """Mark the partition as lost: another worker may have owned it, so it must be taken over again. No effect if unknown."""
        if self._known.pop(partition, None) is not None or partition in self._sought:
            self._lost.add(partition)
        self._sought.discard(partition)

    def not_owned(self, partitions: Collection[Partition]) -> list[Partition]:
        """Return those of the partitions that this worker does not own."""
        return sorted(each for each in partitions if not self.is_ours(each))


_FENCES, _SECONDS = 5, 60
"""A worker that was paused beyond its transaction's time-out is fenced once. Two workers with one transactional id fence each
other again and again; so many fences within so many seconds are taken for the latter."""


class Fences:
    def __init__(self) -> None:
        self._at: deque[float] = deque(maxlen=_FENCES)

    def note(self, now: float) -> None:
        """Note that the worker was fenced, at an instant in seconds."""
        self._at.append(now)

    def has_twin(self, now: float) -> bool:
        """Return whether another worker certainly uses the transactional id."""
        return len(self._at) == _FENCES and now - self._at[0] < _SECONDS


_NOTED_AFTER_MS = 5_000
"""Most transactions end within a second or two; they are not reported."""

_LOG = logging.getLogger("resequencer.connectors")


class _Stalled(NamedTuple):
    offset: int
    since: Instant
    behind: int
    is_told: bool


class OpenTransactions:
    """Compares the ends at each poll, and remembers since when the decided end has stayed before the log's end."""

    def __init__(self) -> None:
        self._stalled: dict[Partition, _Stalled] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """One sentence for each partition that has stood still for `_NOTED_AFTER_MS`."""
        return tuple(_text(partition, each) for partition, each in sorted(self._stalled.items()) if each.is_told)

    def note(self, ends: Mapping[Partition, int], log_ends: Mapping[Partition, int], now: Instant) -> None:
        """Take note of the ends after a poll. `ends` are the ends of the decided parts, `log_ends` those of the logs."""
        open_in = {each: end for each, end in ends.items() if end < log_ends[each]}
        stalled = {each: _Stalled(end, now, log_ends[each] - end, is_told=False) for each, end in open_in.items()}
        for partition, at in stalled.items():
            before = self._stalled.get(partition)
            if before is not None and before.offset == at.offset:
                stalled[partition] = self._gone_on(partition, before, at)
        for partition, before in self._stalled.items():
            if before.is_told and (partition not in stalled or not stalled[partition].is_told):
                _LOG.warning(
                    "%s: the open transaction at offset %d has ended, or another worker reads the partition now",
                    partition,
                    before.offset,
                )
        self._stalled = stalled

    def _gone_on(self, partition: Partition, before: _Stalled, now: _Stalled) -> _Stalled:
        is_told = before.is_told or now.since - before.since >= _NOTED_AFTER_MS
        at = _Stalled(now.offset, min(before.since, now.since), now.behind, is_told)
        if is_told and not before.is_told:
            _LOG.warning("%s", _text(partition, at), extra={"partition": str(partition)})
        return at


def _text(partition: Partition, at: _Stalled) -> str:
    what = f"{at.behind} offset{'' if at.behind == 1 else 's'} from there on cannot be read before it ends"
    where = f"--topic {partition.topic} --partition {partition.number}"
    ask = f"kafka-transactions.sh --bootstrap-server … describe-producers {where}"
    end = f"abort {where} --start-offset {at.offset}"
    return (
        f"{partition} has stood at offset {at.offset} since {instant_text(at.since)}: a producer has a transaction open, and "
        f"{what}. The brokers end it after that producer's transaction.timeout.ms. '{ask}' names the producer; the same script "
        f"ends the transaction with '{end}'"
    )
