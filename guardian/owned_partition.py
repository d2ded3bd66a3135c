"""A partition that this worker owns: what was read, committed and published of it, and what is next."""

from collections.abc import Sequence
from itertools import accumulate
from operator import attrgetter

from guardian.partition_orders import PartitionOrders
from guardian.pending_output import (
    find_origin,
    from_pending,
    offset_behind,
    offset_of,
    outcome_record,
    output_record,
    renumbered,
    to_pending,
)
from guardian.ports import OutputRecord, PartitionOutput, Position, TransportRefused
from guardian.positions import CHARACTERS_PER_RECORD, DoneOffsets, Positions, encode, longest
from guardian.takeover import Metadata, Takeover, last_commit
from resequencer.clock import Instant
from resequencer.notification import Notification
from resequencer.order import OrderOutcome
from resequencer.record import Partition, size_of
from resequencer.storage_port import Commit, PartitionStore, Pending, UnitChange
from resequencer.turn.turn import Output, Turn

_MANY_RANGES = 10_000
"""Above this many unsettled ranges, done offsets are not written: that would cost more than it saves.

After a crash, records that were done may then be notified again.
"""


_RECORD_BYTES = 1_000
"""The cost to send a record beside its bytes: it takes as long as so many more bytes."""

_LONGEST_STEP_MS = 10_000
"""The most that one cycle adds to the caught-up clock: records may have been unread while the cycle was delayed."""


class OwnedPartition:
    """The offsets and numbers of one partition.

    `read_to` is the offset to read next. `unpublished` is committed output that is not published yet. `attempt` is the part of
    it whose publication was tried without an answer, so it may be published. `caught_up_ms` is the partition's caught-up clock
    (resequencer/storage_port.py). `orders` is what is committed of the partition's orders.

    Without `waits_for_handled` an envelope is settled when it was handled or stashed. With it, an envelope is settled only when
    it was handled, and the position also waits for the first record of each active unit. Else, after a restart, a duplicate of
    an earlier record would meet a unit without memory. The position's metadata then carries the done offsets beyond the
    position, so that output of these records is not published again when they are read again.
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
        self.positions = Positions(plan.offset)
        self.unpublished: tuple[OutputRecord, ...] = tuple(map(from_pending, plan.pending))
        self._sizes = _sizes_of(plan.pending)
        self._highest_number = plan.highest_number
        self._behind: Sequence[int] | None = tuple(map(offset_behind, self.unpublished))
        self._left: Sequence[Output] = ()
        self.attempt: PartitionOutput | None = None
        self._heal_offset = plan.heal_offset
        self._just_read: Sequence[int] = ()
        self._is_durable = is_durable
        self._waits_for_handled = waits_for_handled
        self._done_characters = done_characters
        self._done = plan.done
        self._idle: dict[str, int] = {}
        self.caught_up_ms, self._surely_caught_up_ms = store.header.caught_up_ms, 0
        self._caught_up_at: Instant | None = None
        self._log_end = plan.offset
        self._last_caught_up_at: Instant | None = None
        self._last_written_at: Instant | None = None
        self._written_at: list[Instant] = []
        self.orders = self._next_orders = plan.orders
        self.source_state = plan.source_state

    @property
    def done_to(self) -> int:
        """The offset up to which records were handled, before the restart or since."""
        return max(self.read_to, self._done.end) if self._done is not None else self.read_to

    @property
    def room(self) -> int | None:
        """How many records may be read before the encoded done offsets could be too long; None for any number.

        At least 1 while records that were done before the restart are read again: they are encoded already.
        """
        if not self._waits_for_handled or self._done_characters is None:
            return None
        done = self._done_beyond(self.positions.acknowledged, self.positions.unsettled, self.read_to)
        room = (self._done_characters - longest(self.positions.acknowledged, done)) // CHARACTERS_PER_RECORD - 1
        return max(room, 1 if self.read_to < done.end else 0)

    def note_active(self, unit: str, offset: int) -> None:
        """Keep the position at `offset` while the unit is active. Called before a record of the unit is settled."""
        if self._waits_for_handled:
            self._idle.pop(unit, None)
            self.positions.pin(unit, offset)

    def note_idle(self, unit: str, end: int) -> None:
        """Note that the unit's actor has stopped while the log ended at `end`, even if not all up to `end` can be read yet.

        More records of the unit may follow up to `end`: after an outage, or behind a hanging transaction, every unit looks idle.
        """
        self._idle[unit] = end

    def let_idle_go(self, read_to: int) -> None:
        """Unpin the idle units for which nothing came until everything was read that the log held when they fell idle."""
        while self._idle:
            unit, end = next(iter(self._idle.items()))  # The first unit that fell idle has the lowest end.
            if end > read_to:
                return
            del self._idle[unit]
            self.positions.unpin(unit)

    @property
    def is_healing(self) -> bool:
        """Whether records that the storage has lost are still being read again."""
        return self.read_to < self._heal_offset

    def note_read(
        self, offsets: Sequence[int], read_to: int, written_at: Instant | None = None, source_state: str | None = None
    ) -> None:
        """Note the offsets of a poll. The position takes them over at the commit, when most of them are settled.

        `written_at` is the timestamp of the last record, None if it has none. `source_state` is committed with them, None if it
        has not changed.
        """
        self._just_read, self.read_to = offsets, read_to
        if source_state is not None:
            self.source_state = source_state
        if written_at is not None:
            self._last_written_at = written_at

    def note_reach(self, end: int, polled_at: Instant, answered_at: Instant) -> None:
        """Advance the caught-up clock after a poll that began at `polled_at` and was answered at `answered_at`.

        The log ended at `end` in between. The clock advances between two polls that both read everything, and not while the
        partition is paused. If the system clock was set forward, the caught-up clock advances by one step at most, before a poll
        and within it. If it was set back, the caught-up clock does not move.

        Raises:
            TransportRefused: The log is shorter than before: new records will take offsets that count as done.
        """
        if end < self.done_to and self.done_to > self.read_to:
            problem = f"it was handled up to offset {self.done_to}, and its log ends at {end}: records were lost or cut off"
            raise TransportRefused(str(self.partition), f"{problem}. Restore them, or reset the group's position")
        is_caught_up, self._log_end = self.read_to >= end and not self.orders.is_paused, end
        if not is_caught_up:
            self._caught_up_at = None
            return
        if self._caught_up_at is not None:
            self.caught_up_ms += _step(self._caught_up_at, polled_at)
        self._surely_caught_up_ms = self.caught_up_ms
        if self._caught_up_at is not None:
            self.caught_up_ms += _step(polled_at, answered_at)
        self._caught_up_at, self._last_caught_up_at = answered_at, polled_at

    def last_expired(self, retention_ms: int) -> int:
        """Return the instant of the caught-up clock up to which units that did not change since have expired.

        What was read last may have come while the poll went on, so it changes its units at the clock of the poll's end. What is
        not read yet may have come then, too, so units are as old as they were when the poll began.
        """
        return self._surely_caught_up_ms - retention_ms

    def find_lag_ms(self, now: Instant, *, is_end_known: bool = True) -> int | None:
        """Return for how long at most the oldest unread record has been unread; 0 if everything is read, None if not known.

        It is an estimate from above, because the unread record itself is not known. All of them were written after the instant
        at which everything was read, and as a rule after the last record that was read, if the source has timestamps. While the
        log's end is not known, there may be an unread record, which came directly after that.
        """
        if is_end_known and self.read_to >= self._log_end:
            return 0
        known = [each for each in (self._last_caught_up_at, self._last_written_at) if each is not None]
        return max(0, now - max(known)) if known else None

    def next_commit(
        self, output: Sequence[Output], turns: Sequence[Turn], attempt: str, orders: PartitionOrders | None = None
    ) -> Commit:
        """Return the commit with all changes of this cycle, and give the output its numbers.

        `orders` is what is known of the partition's orders after the cycle; None if it read none.
        """
        assert not self.unpublished, "what was committed leaves before anything else is settled"
        self._next_orders = self.orders if orders is None else orders
        news = output if self._done is None else [each for each in output if not self._was_done(each)]
        first = self._highest_number + 1
        heal_offset = self._heal_offset
        self.unpublished = tuple(
            [
                output_record(number, each, heal_offset) if type(each) is Notification else self._record(number, each)
                for number, each in enumerate(news, first)
            ]
        )
        self._behind, self._left = None, news
        return self._commit(attempt, tuple([each.change for each in turns if each.change is not None]))

    def healing_commit(self, attempt: str, lost: Sequence[OrderOutcome] = ()) -> Commit:
        """Return a commit that gives pending output new numbers and the mark `possible-duplicate`.

        The commit also stores the heal offset: output of records below it is marked too. `lost` are the outcomes of orders that
        the storage has lost.
        """
        renamed = enumerate(self.unpublished, self._highest_number + 1)
        self.unpublished = tuple(renumbered(each, number) for number, each in renamed)
        first = self._highest_number + 1 + len(self.unpublished)
        self.unpublished += tuple(self._record(number, each) for number, each in enumerate(lost, first))
        self._behind = tuple(map(offset_behind, self.unpublished))
        return self._commit(attempt)

    def _offsets_behind(self) -> Sequence[int]:
        """The offsets of the records that caused the unpublished output. Needed only if a part of it leaves."""
        if self._behind is None:
            self._behind = tuple([offset_of(each.number, what) for each, what in zip(self.unpublished, self._left, strict=True)])
        return self._behind

    def _was_done(self, what: Output) -> bool:
        """Whether the record that caused the output was done before the restart, so that the output was published then."""
        origin = None if self._done is None else find_origin(what)
        return self._done is not None and origin is not None and self._done.is_done(origin.offset)

    def _record(self, number: int, what: Output) -> OutputRecord:
        if isinstance(what, OrderOutcome):
            return outcome_record(number, what, self.partition, self.orders.heal_offset)
        return output_record(number, what, self._heal_offset)

    def note_committed(self, commit: Commit, turns: Sequence[Turn], now: Instant) -> None:
        """Take over a commit that the storage has confirmed: its numbers are used, and what was read is settled."""
        self._highest_number, self.orders = commit.highest_number, self._next_orders
        stashed = {offset for each in turns for offset in each.added} if self._waits_for_handled else set()
        unsettled = [offset for offset in self._just_read if offset in stashed] if stashed else ()
        self.positions.read(unsettled, self.read_to, now)
        self._just_read = ()
        for each in turns:
            self._written_at += each.written_at
        if self._waits_for_handled:
            for each in turns:
                for offset in each.removed:
                    self.positions.settle(offset, now)

    def has_news(self, now: Instant, acknowledge_every_ms: int) -> bool:
        """Whether there is output to publish, or a position that is due."""
        return bool(self.unpublished) or self.positions.due(now, acknowledge_every_ms)

    def is_published(self, offset: int) -> bool:
        """Whether everything committed is published, with a position beyond this offset."""
        return not self.unpublished and not self.positions.has_moved() and self.positions.acknowledged > offset

    def fits_within(self, room: int) -> tuple[int, int]:
        """Return how many unpublished records, from the first on, fit into `room` bytes, and how many bytes they take.

        The output of one input record is never split. The output of the first input record is always included.
        """
        sizes = self._sizes
        taken = sum(sizes)
        if taken <= room:
            return len(sizes), taken
        count = self._whole(next(at for at, so_far in enumerate(accumulate(sizes)) if so_far > room))
        return count, sum(sizes[:count])

    def _whole(self, at: int) -> int:
        """Return the count of output records before the input record that caused the one at `at`.

        If that input record is the first, return the count of its own output records.
        """
        behind = self._offsets_behind()
        begin = next((place for place in range(at, 0, -1) if behind[place - 1] != behind[at]), 0)
        return begin or next((place for place in range(at, len(behind)) if behind[place] != behind[0]), len(behind))

    def output(self, count: int) -> PartitionOutput:
        """Return the first `count` unpublished records with the position to publish, and note them as tried."""
        leaves, stays = self.unpublished[:count], self._offsets_behind()[count:] if count < len(self.unpublished) else ()
        offset, undone = self._position(stays)
        # In a worker that has failed, what was read last is not committed.
        committed = self.positions.next_offset
        done = encode(offset, self._done_beyond(offset, undone, committed)) if self._tells_done() else ""
        published, at = self._published_before(count), offset if done else None
        state = "" if self._is_durable else self.source_state
        metadata = Metadata(*last_commit(self.store.header), published, done, at, state)
        position, is_last = Position(offset, metadata.encode(), highest=published), count >= len(self.unpublished)
        output = PartitionOutput(self.partition, leaves, position, is_last)
        self.attempt = output if leaves else None
        return output

    def give_up_attempt(self) -> None:
        """Forget the last attempt. Call it only if certainly nothing of the attempt was published."""
        self.attempt = None

    def note_published(self, output: PartitionOutput, now: Instant) -> None:
        """Take over a publication that the transport has confirmed."""
        count = len(output.records)
        self.unpublished, self._sizes = self.unpublished[count:], self._sizes[count:]
        self._behind, self._left = None if self._behind is None else self._behind[count:], self._left[count:]
        self.attempt = None
        self.positions.note_acknowledged(min(output.position.offset, self.positions.acknowledged), now)

    def take_published(self) -> Sequence[Instant]:
        """Return the timestamps of the records that were handled since the last call; none while output is not published."""
        if self.unpublished:
            return ()
        taken, self._written_at = self._written_at, []
        return taken

    def _published_before(self, count: int) -> int:
        """The highest number up to which all output is published, once the first `count` records are."""
        return self.unpublished[count].number - 1 if count < len(self.unpublished) else self._highest_number

    def _position(self, stays: Sequence[int]) -> tuple[int, Sequence[range]]:
        """Return the position and what is not done beyond it, while output of the records at `stays` is not published.

        With a durable storage the next owner publishes that output. Without one, the records must be read again.
        """
        acknowledged, unsettled = self.positions.acknowledged, self.positions.unsettled
        stays = [each for each in stays if each >= 0]  # Outcomes of orders are behind no record.
        if self._is_durable or not stays:
            return max(acknowledged, self._heal_offset), unsettled
        undone = [range(each, each + 1) for each in set(stays)]
        first = max(min(stays), self.positions.last_acknowledged)
        return min(acknowledged, first), sorted([*unsettled, *undone], key=attrgetter("start"))

    def _tells_done(self) -> bool:
        return self._waits_for_handled and (self._done_characters is not None or len(self.positions.unsettled) < _MANY_RANGES)

    def _done_beyond(self, position: int, unsettled: Sequence[range], read_to: int) -> DoneOffsets:
        """The offsets beyond a position that are done, before the restart or since, up to `read_to`, except `unsettled`.

        The position may be below what is settled: output of settled records may not be published yet.
        """
        before = self._done or DoneOffsets(position)
        return before.advanced(read_to, unsettled)

    def _commit(self, attempt: str, changes: tuple[UnitChange, ...] = ()) -> Commit:
        # A storage without durability is never asked for it: the next owner reads the records again.
        pending = tuple(map(to_pending, self.unpublished)) if self._is_durable else ()
        self._sizes = _sizes_of(pending) if self._is_durable else tuple(map(_size_of, self.unpublished))
        return Commit(
            number=self.store.header.commit + 1,
            attempt=attempt,
            next_offset=self.read_to,
            highest_number=self.unpublished[-1].number if self.unpublished else self._highest_number,
            heal_offset=self._heal_offset,
            changes=changes,
            added=pending,
            published=self._highest_number,
            source=self._source,
            caught_up_ms=self.caught_up_ms,
            orders=self._next_orders.encode(),
            source_state=self.source_state,
        )


def _step(since: Instant, until: Instant) -> int:
    return min(max(0, until - since), _LONGEST_STEP_MS)


def _size_of(each: OutputRecord) -> int:
    return _RECORD_BYTES + size_of(each.value, each.key, each.headers)


def _sizes_of(pending: Sequence[Pending]) -> tuple[int, ...]:
    """The cost to send each record, in bytes; the bodies themselves are not kept beside the records."""
    return tuple([_RECORD_BYTES + len(each.body) for each in pending])
