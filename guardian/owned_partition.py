"""A partition that this worker owns: what was read, committed and published of it, and what comes next."""

from collections.abc import Sequence
from operator import attrgetter

from connectors.port import OutputRecord, PartitionOutput, Position, TransportRefused
from domain.clock import Instant
from domain.dead_letter import DeadLetter
from domain.notification import Notification
from domain.record import Partition
from guardian.done_offsets import CHARACTERS_PER_RECORD, DoneOffsets, encode, longest
from guardian.pending_output import from_pending, offset_behind, origin_of, output_record, renumbered, size_of, to_pending
from guardian.positions import Positions
from guardian.takeover import Metadata, Takeover, last_commit
from resequencer.unit import Decision
from storage.port import Commit, PartitionStore, UnitChange

_THROTTLE_MS = 1_000
"""A position that moved while nothing left is published no more often: the storage knows where to read on."""

_MANY_RANGES = 10_000
"""Beyond so many, what is done beyond takes longer to write than what is saved: after a crash it may be notified again."""


_LONGEST_STEP_MS = 10_000
"""What lies between two cycles counts as caught up for no longer: one that was delayed may have let records lie unread."""


class OwnedPartition:
    """The numbers of one partition. `read_to` is where reading goes on, `unpublished` what is committed and has not left yet;
    of that, `attempt` is what was tried and may have left.

    `caught_up_ms` is its caught-up clock (storage/port.py).

    With `waits_for_handled` an envelope is settled when it was handled, without it when it was handled or stashed. The position
    then waits for the first record of each active unit too, or a duplicate of what lies before it would meet a unit that knows
    nothing; what is done beyond the position rides along, and does not leave again when it is read again.
    """

    def __init__(
        self,
        partition: Partition,
        store: PartitionStore,
        plan: Takeover,
        source: str = "",
        *,
        is_durable: bool,
        waits_for_handled: bool,
        done_characters: int | None = None,
    ) -> None:
        self.partition = partition
        self._source = source
        self.store = store
        self.read_to = plan.offset
        self.positions = Positions(plan.offset, _THROTTLE_MS)
        self.unpublished: tuple[OutputRecord, ...] = tuple(map(from_pending, plan.pending))
        self._highest_number = plan.highest_number
        self._offsets_behind = tuple(map(offset_behind, self.unpublished))
        self.attempt: PartitionOutput | None = None
        self._heal_offset = plan.heal_offset
        self._just_read: Sequence[int] = ()
        self._is_durable = is_durable
        self._waits_for_handled = waits_for_handled
        self._done_characters = done_characters
        self._done = plan.done
        self._idle: dict[str, int] = {}
        self.caught_up_ms = store.header.caught_up_ms
        self._caught_up_at: Instant | None = None

    @property
    def done_to(self) -> int:
        """Up to where something was handled, before the restart or since."""
        return max(self.read_to, self._done.end) if self._done is not None else self.read_to

    @property
    def room(self) -> int | None:
        """How many records may be read before what rides along could be too long; None for any number.

        What was done before the restart is read again in any case: it rides along already.
        """
        if not self._waits_for_handled or self._done_characters is None:
            return None
        done = self._done_beside(self.positions.unsettled)
        room = (self._done_characters - longest(self.positions.acknowledged, done)) // CHARACTERS_PER_RECORD - 1
        return max(room, 1 if self.read_to < done.end else 0)

    def note_active(self, unit: str, offset: int) -> None:
        """A record of this unit is about to be settled."""
        if self._waits_for_handled:
            self._idle.pop(unit, None)
            self.positions.pin(unit, offset)

    def note_idle(self, unit: str, end: int) -> None:
        """The unit's actor is gone, when the log went on to `end`, whether or not that can be read yet: up to there more of the
        unit may lie, for after an outage, or behind a transaction that hangs, all units have been idle for long.
        """
        self._idle[unit] = end

    def let_idle_go(self, read_to: int) -> None:
        """The position waits no longer for idle units of which nothing came until all was read that lay there by then."""
        while self._idle:
            unit, end = next(iter(self._idle.items()))  # The first to fall idle: the log was shortest then.
            if end > read_to:
                return
            del self._idle[unit]
            self.positions.unpin(unit)

    @property
    def is_healing(self) -> bool:
        """What a storage that had forgotten is to be told once more has not all been read yet."""
        return self.read_to < self._heal_offset

    def note_read(self, offsets: Sequence[int], read_to: int) -> None:
        """A poll brought these; the position learns of them with the commit, when most of them are settled."""
        self._just_read, self.read_to = offsets, read_to

    def note_reach(self, end: int, now: Instant) -> None:
        """A cycle that began at `now` has read on to `read_to`, while its log went on to `end`.

        The caught-up clock advances between two cycles that both read everything. A clock that was set forward moves it by one
        step at most, and one that was set back not at all.

        Raises:
            TransportRefused: The log is shorter than it was: what takes the place of what was done beyond `read_to` is not done.
        """
        if end < self.done_to and self.done_to > self.read_to:
            problem = f"it was handled up to offset {self.done_to}, and its log ends at {end}: records were lost, or cut off"
            raise TransportRefused(str(self.partition), f"{problem}. Restore them, or reset the group's position")
        is_caught_up = self.read_to >= end
        if is_caught_up and self._caught_up_at is not None:
            self.caught_up_ms += min(max(0, now - self._caught_up_at), _LONGEST_STEP_MS)
        self._caught_up_at = now if is_caught_up else None

    def next_commit(self, left: Sequence[Notification | DeadLetter], decisions: Sequence[Decision], attempt: str) -> Commit:
        """All that this cycle changed; what leaves gets its numbers here."""
        assert not self.unpublished, "what was committed leaves before anything else is settled"
        news = left if self._done is None else [each for each in left if not self._done.is_done(origin_of(each).offset)]
        first = self._highest_number + 1
        self.unpublished = tuple(output_record(number, each, self._heal_offset) for number, each in enumerate(news, first))
        self._offsets_behind = tuple(origin_of(each).offset for each in news)
        return self._commit(attempt, tuple(each.change for each in decisions if each.change is not None))

    def healing_commit(self, attempt: str) -> Commit:
        """What was pending gets new numbers and the mark; the storage learns from where on things may repeat."""
        renamed = enumerate(self.unpublished, self._highest_number + 1)
        self.unpublished = tuple(renumbered(each, number) for number, each in renamed)
        return self._commit(attempt)

    def note_committed(self, commit: Commit, decisions: Sequence[Decision], now: Instant) -> None:
        """The storage answered: the numbers are given out, and what was read is settled."""
        self._highest_number = commit.highest_number
        stashed = {offset for each in decisions for offset in each.stashed} if self._waits_for_handled else set()
        unsettled = [offset for offset in self._just_read if offset in stashed] if stashed else ()
        self.positions.read(unsettled, self.read_to, now)
        self._just_read = ()
        if self._waits_for_handled:
            for each in decisions:
                for offset in each.unstashed:
                    self.positions.settle(offset, now)

    def has_news(self, now: Instant) -> bool:
        """Something has to leave, or the position has moved long enough ago."""
        return bool(self.unpublished) or self.positions.due(now)

    def has_left(self, offset: int) -> bool:
        """All that was committed has left, with a position beyond this one."""
        return not self.unpublished and not self.positions.has_moved() and self.positions.acknowledged > offset

    def fitting(self, room: int) -> tuple[int, int]:
        """How many of what is unpublished, from the first on, take up to `room` bytes, and how many they take.

        Of what a record caused it is all or nothing, and all of the first one's in any case.
        """
        taken = 0
        for at, each in enumerate(self.unpublished):
            taken += size_of(each)
            if taken > room:
                count = self._whole(at)
                return count, sum(map(size_of, self.unpublished[:count]))
        return len(self.unpublished), taken

    def _whole(self, at: int) -> int:
        """How many come before the record that caused the one at this place; that record's own if it is the first."""
        behind = self._offsets_behind
        begin = next((place for place in range(at, 0, -1) if behind[place - 1] != behind[at]), 0)
        return begin or next((place for place in range(at, len(behind)) if behind[place] != behind[0]), len(behind))

    def output(self, count: int) -> PartitionOutput:
        """The first `count` that are unpublished, with the position that they stand on."""
        leaves, stays = self.unpublished[:count], self._offsets_behind[count:]
        offset, undone = self._position(stays)
        done = encode(offset, self._done_beside(undone)) if self._tells_done() else ""
        published, at = self._published_before(count), offset if done else None
        metadata = Metadata(*last_commit(self.store.header), published, done, at)
        output = PartitionOutput(self.partition, leaves, Position(offset, metadata.encode()))
        self.attempt = output if leaves else None
        return output

    def give_up_attempt(self) -> None:
        """It is certain that nothing of it left."""
        self.attempt = None

    def note_published(self, output: PartitionOutput, now: Instant) -> None:
        """The transport answered: this has left."""
        count = len(output.records)
        self.unpublished, self._offsets_behind = self.unpublished[count:], self._offsets_behind[count:]
        self.attempt = None
        self.positions.told(min(output.position.offset, self.positions.acknowledged), now)

    def _published_before(self, count: int) -> int:
        """The highest number up to which everything has left, once the first `count` have."""
        return self.unpublished[count].number - 1 if count < len(self.unpublished) else self._highest_number

    def _position(self, stays: Sequence[int]) -> tuple[int, Sequence[range]]:
        """Where the position may be while what records at these offsets caused has not left, and what is not done beyond it.

        What a storage keeps, the next owner lets leave. Without one, its record must be read again.
        """
        acknowledged, unsettled = self.positions.acknowledged, self.positions.unsettled
        if self._is_durable or not stays:
            return max(acknowledged, self._heal_offset), unsettled
        undone = [range(each, each + 1) for each in set(stays)]
        first = max(min(stays), self.positions.last_told)
        return min(acknowledged, first), sorted([*unsettled, *undone], key=attrgetter("start"))

    def _tells_done(self) -> bool:
        return self._waits_for_handled and (self._done_characters is not None or len(self.positions.unsettled) < _MANY_RANGES)

    def _done_beside(self, unsettled: Sequence[range]) -> DoneOffsets:
        """What is done beyond the position, before the restart or since, but for these."""
        before = self._done or DoneOffsets(self.positions.acknowledged)
        return before.advanced(self.read_to, unsettled)

    def _commit(self, attempt: str, changes: tuple[UnitChange, ...] = ()) -> Commit:
        return Commit(
            number=self.store.header.commit + 1,
            attempt=attempt,
            next_offset=self.read_to,
            highest_number=self.unpublished[-1].number if self.unpublished else self._highest_number,
            heal_offset=self._heal_offset,
            changes=changes,
            added=tuple(map(to_pending, self.unpublished)),
            published=self._highest_number,
            source=self._source,
            caught_up_ms=self.caught_up_ms,
        )
