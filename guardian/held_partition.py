"""A partition that this worker owns: what was read, committed and published of it, and what comes next."""

from collections.abc import Sequence

from connectors.port import Outgoing, PartitionOutput, Position
from domain.clock import Instant
from domain.dead_letter import DeadLetter
from domain.notification import Notification
from domain.record import Partition
from guardian.outgoing import from_pending, outgoing, renumbered, to_pending
from guardian.positions import Positions
from guardian.takeover import Metadata, Takeover, last_commit
from resequencer.unit import Decision
from storage.port import Commit, PartitionStore, UnitChange

_THROTTLE_MS = 1_000
"""A position that moved while nothing left is published no more often: the storage knows where to read on."""


class HeldPartition:
    """The numbers of one partition. `read_to` is where reading goes on, `unpublished` what is committed and has not left yet.

    With `waits_for_handled` an envelope is settled when it was handled, without it when it was handled or stashed.
    """

    def __init__(
        self, partition: Partition, store: PartitionStore, plan: Takeover, source: str = "", *, waits_for_handled: bool
    ) -> None:
        self.partition = partition
        self._source = source
        self.store = store
        self.read_to = plan.offset
        self.positions = Positions(plan.offset, _THROTTLE_MS)
        self.unpublished: tuple[Outgoing, ...] = tuple(map(from_pending, plan.pending))
        self._highest_number = plan.highest_number
        self._published = plan.published
        self._heal_offset = plan.heal_offset
        self._just_read: Sequence[int] = ()
        self._waits_for_handled = waits_for_handled

    def hold_back(self, stashed: Sequence[int], now: Instant) -> None:
        """These offsets, ascending, were stashed before it was taken over and still are: the position waits for them."""
        if stashed:
            self.positions = Positions(stashed[0], _THROTTLE_MS)
            self.positions.read(stashed, self.read_to, now)

    def note_read(self, offsets: Sequence[int], read_to: int, now: Instant) -> None:
        self.positions.read(offsets, read_to, now)
        self._just_read, self.read_to = offsets, read_to

    def next_commit(self, left: Sequence[Notification | DeadLetter], decisions: Sequence[Decision], attempt: str) -> Commit:
        """All that this cycle changed; what leaves gets its numbers here."""
        assert not self.unpublished, "what was committed leaves before anything else is decided"
        first = self._highest_number + 1
        self.unpublished = tuple(outgoing(number, each, self._heal_offset) for number, each in enumerate(left, first))
        return self._commit(attempt, tuple(each.change for each in decisions if each.change is not None))

    def healing_commit(self, attempt: str) -> Commit:
        """What was pending gets new numbers and the mark; the storage learns from where on things may repeat."""
        self._published = self._highest_number
        renamed = enumerate(self.unpublished, self._highest_number + 1)
        self.unpublished = tuple(renumbered(each, number) for number, each in renamed)
        return self._commit(attempt)

    def note_committed(self, commit: Commit, decisions: Sequence[Decision], now: Instant) -> None:
        """The storage answered: the numbers are given out, and what was read is settled."""
        self._highest_number = commit.highest_number
        stashed = {offset for each in decisions for offset in each.stashed} if self._waits_for_handled else ()
        unstashed = [offset for each in decisions for offset in each.unstashed] if self._waits_for_handled else ()
        for offset in (*self._just_read, *unstashed):
            if offset not in stashed:
                self.positions.settle(offset, now)
        self._just_read = ()

    def has_news(self, now: Instant) -> bool:
        """Something has to leave, or the position has moved long enough ago."""
        return bool(self.unpublished) or self.positions.due(now)

    def output(self) -> PartitionOutput:
        """What leaves, with the position that it stands on."""
        published = self.unpublished[-1].number if self.unpublished else self._published
        metadata = Metadata(*last_commit(self.store.header), published)
        offset = max(self.positions.acknowledged, self._heal_offset)
        return PartitionOutput(self.partition, self.unpublished, Position(offset, metadata.encode()))

    def note_published(self, now: Instant) -> None:
        """The transport answered: everything that was given a number has left."""
        self._published, self.unpublished = self._highest_number, ()
        self.positions.told(self.positions.acknowledged, now)

    def _commit(self, attempt: str, changes: tuple[UnitChange, ...] = ()) -> Commit:
        return Commit(
            number=self.store.header.commit + 1,
            attempt=attempt,
            next_offset=self.read_to,
            highest_number=self.unpublished[-1].number if self.unpublished else self._highest_number,
            heal_offset=self._heal_offset,
            changes=changes,
            added=tuple(map(to_pending, self.unpublished)),
            published=self._published,
            source=self._source,
        )
