"""Faults of storages and of their callers, as mutations of the real code."""

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

from harness.planted.protocol import Patch
from msgspec.structs import replace
from simulation.shared_storage import SharedPartitionStore, SharedStorage
from simulation.struck_storage import StruckPartitionStore

import guardian.partitions
from guardian.cycle import Cycle, PreparedCommit
from guardian.owned_partition import OwnedPartition
from guardian.partitions import Partitions
from guardian.ports import Channel, Position
from guardian.positions import DoneOffsets
from guardian.takeover import Takeover
from guardian.unit_registry import UnitRegistry
from resequencer.errors import OwnershipLost
from resequencer.record import Partition
from resequencer.storage_port import Commit, Header, Pending, StorageUnavailable, UnitChange
from resequencer.turn.turn import Turn
from storage.fencing import LastCommit
from storage.fencing import is_done as right_is_done
from storage.none import KeptPartition, Memory


def no_compare_and_set(patch: Patch) -> None:
    patch.setattr("storage.none.is_done", lambda *_: False)
    patch.setattr("storage.none.check_owner", lambda *_: None)


def owner_compared_without_the_number(patch: Patch) -> None:
    """The owner's epoch has no commit number, so a late commit of the same owner is accepted."""

    def check_owner(stored: LastCommit, header: Header) -> None:
        if stored.token != header.token:
            raise OwnershipLost("another owner")

    def is_done(stored: LastCommit, header: Header, commit: Commit) -> bool:
        check_owner(stored, header)
        return (stored.number, stored.attempt) == (commit.number, commit.attempt)

    patch.setattr("storage.none.check_owner", check_owner)
    patch.setattr("storage.none.is_done", is_done)


def token_counted_instead_of_drawn(patch: Patch) -> None:
    """After the storage went back in time the same number is used again."""

    def faulty(self: SharedStorage, partition: Partition) -> SharedPartitionStore:
        kept = self._memory.partitions.get(partition)
        token = str(int(kept.header.token) + 1 if kept else 1)
        self._random_token = lambda: token
        return right(self, partition)

    right = SharedStorage.open
    patch.setattr(SharedStorage, "open", faulty)


def published_though_the_commit_was_refused(patch: Patch) -> None:
    """A transaction includes the partitions whose commit failed."""

    def faulty(self: SharedPartitionStore, commit: Commit) -> None:
        try:
            right(self, commit)
        except OwnershipLost:
            self._header = replace(self._header, commit=commit.number)

    right = SharedPartitionStore.commit
    patch.setattr(SharedPartitionStore, "commit", faulty)


def a_commit_stored_in_two_steps(patch: Patch) -> None:
    """The units are stored first, then the header and the pending output."""

    def faulty(self: StruckPartitionStore, commit: Commit) -> None:
        sent: SharedPartitionStore = copy(self._inner)
        self._line.ask("half a commit", lambda: half(sent, commit), StorageUnavailable("no answer to half a commit"))
        right(self, commit)

    def half(sent: SharedPartitionStore, commit: Commit) -> None:
        sent.load(())
        for change in commit.changes:
            added = {entry.offset: entry.body for entry in change.stash_added}
            sent._memory._change(sent._kept, change, added, commit.caught_up_ms)

    right = StruckPartitionStore.commit
    patch.setattr(StruckPartitionStore, "commit", faulty)


def decided_anew_after_a_time_out(patch: Patch) -> None:
    """The new decision has the same number, in a storage that compares only numbers: two layers guard against this fault."""

    def is_done(stored: LastCommit, header: Header, commit: Commit) -> bool:
        return right_is_done(stored._replace(attempt=commit.attempt), header, commit)

    def prepared(self: Cycle, owned: OwnedPartition, letters: Any, turns: Any, _: Any) -> PreparedCommit:
        """The turns of the unanswered commit join those of the next poll."""
        old_letters, old_turns = carried.pop(id(owned), ((), ()))
        tried[id(owned)] = (*old_letters, *letters), (*old_turns, *turns)
        return right_prepared(self, owned, *tried[id(owned)], None)

    def commit_partition(self: Cycle, prepared: PreparedCommit, call: Callable[[], None], _: int) -> bool:
        owned = prepared.owned
        try:
            call()
        except StorageUnavailable:
            owned.unpublished = ()
            carried[id(owned)] = tried[id(owned)]
            return False
        except OwnershipLost as error:
            self.partitions.lose(owned.partition, error)
            return False
        owned.note_committed(prepared.commit, prepared.turns, self._tools.clock.now())
        return True

    tried: dict[int, tuple[tuple[Any, ...], tuple[Any, ...]]] = {}
    carried: dict[int, tuple[tuple[Any, ...], tuple[Any, ...]]] = {}
    right_prepared = Cycle._prepared
    patch.setattr(Cycle, "_prepared", prepared)
    patch.setattr("storage.none.is_done", is_done)
    patch.setattr(Cycle, "_commit_partition", commit_partition)


def dead_letters_without_numbers(patch: Patch) -> None:
    """Dead letters are never pending: they leave with their cycle or are lost."""

    def faulty(self: OwnedPartition, attempt: str, changes: tuple[UnitChange, ...] = ()) -> Commit:
        commit = right(self, attempt, changes)
        letters = {each.number for each in self.unpublished if each.channel is Channel.DEAD_LETTERS}
        return replace(commit, added=tuple(each for each in commit.added if each.number not in letters))

    right = OwnedPartition._commit
    patch.setattr(OwnedPartition, "_commit", faulty)


def what_left_in_part_is_taken_for_done(patch: Patch) -> None:
    """If the source is the store, the position passes records whose output has not left completely."""
    right = OwnedPartition._position
    patch.setattr(OwnedPartition, "_position", lambda self, _: right(self, ()))


def waiting_units_expire(patch: Patch) -> None:
    """Waiting units expire as if they were idle."""

    def take_over(self: Memory, kept: KeptPartition, change: UnitChange, *rest: Any) -> None:
        right_change(self, kept, change, *rest)
        kept.idle[change.unit] = rest[-1]

    def forget(self: KeptPartition, unit: str) -> None:
        right_forget(self, unit)
        self.waiting.pop(unit, None)

    right_change, right_forget = Memory._change, KeptPartition.forget
    patch.setattr(Memory, "_change", take_over)
    patch.setattr(KeptPartition, "forget", forget)


def no_first_position(patch: Patch) -> None:
    """The first commit comes before there is a position to compare it with."""

    def faulty(*arguments: Any, **named: Any) -> Takeover:
        return replace(right(*arguments, **named), is_new=False)

    right = guardian.partitions.plan_takeover
    patch.setattr(guardian.partitions, "plan_takeover", faulty)


def stopped_by_one_that_owns_nothing(patch: Patch) -> None:
    """A partition that was lost once is never taken over again."""

    def lose(self: Partitions, partition: Partition, error: Exception) -> None:
        right_lose(self, partition, error)
        lost.add((id(self), partition))

    def try_to_take_over(self: Partitions, partition: Partition) -> None:
        if (id(self), partition) not in lost:
            right_try(self, partition)

    lost: set[tuple[int, Partition]] = set()
    right_lose, right_try = Partitions.lose, Partitions._try_to_take_over
    patch.setattr(Partitions, "lose", lose)
    patch.setattr(Partitions, "_try_to_take_over", try_to_take_over)


# When a storage has forgotten


def forgetting_noticed_by_the_offset_alone(patch: Patch) -> None:
    """A storage whose offset is as high as the position's counts as complete."""

    def faulty(header: Header, pending: Sequence[Pending], position: Position | None, log: range, **named: Any) -> Takeover:
        is_as_far = position is not None and (header.next_offset or 0) >= position.offset
        with patch.context() as within:
            within.setattr("guardian.takeover._is_known", lambda *_: is_as_far)
            return right(header, pending, position, log, **named)

    right = guardian.partitions.plan_takeover
    patch.setattr(guardian.partitions, "plan_takeover", faulty)


def healed_by_any_worker(patch: Patch) -> None:
    """A zombie may heal, because the worker does not ask the group before."""
    patch.setattr(Partitions, "_fence", lambda *_: None)


def numbers_kept_when_healing(patch: Patch) -> None:
    """Pending output may have left already. It leaves again without a mark."""

    def faulty(self: OwnedPartition, attempt: str, *_: Any) -> Commit:
        return self._commit(attempt)

    patch.setattr(OwnedPartition, "healing_commit", faulty)


def position_goes_back_when_healing(patch: Patch) -> None:
    def faulty(self: OwnedPartition, _: Sequence[int]) -> tuple[int, Sequence[range]]:
        return self.positions.acknowledged, self.positions.unsettled

    patch.setattr(OwnedPartition, "_position", faulty)


# Where the source is the store


def position_waits_for_stashes_only(patch: Patch) -> None:
    """The position does not wait for the first record of each active unit. A restarted unit then misses duplicates."""
    patch.setattr(OwnedPartition, "note_active", lambda *_: None)


def what_was_released_lets_the_position_go(patch: Patch) -> None:
    """The position passes released envelopes at once, as with a storage. A restarted unit then misses their duplicates."""

    def faulty(self: UnitRegistry, turn: Turn, now: int) -> None:
        right(self, turn, now)
        if turn.is_over:
            self._over.append(turn.key)

    right = UnitRegistry.note
    patch.setattr(UnitRegistry, "note", faulty)


def what_waits_is_taken_for_done(patch: Patch) -> None:
    """The position waits, but its list of offsets done ahead includes stashed envelopes."""

    def faulty(self: OwnedPartition, *_: Any) -> DoneOffsets:
        return DoneOffsets(max(self.read_to, before.end)) if (before := self._done) else DoneOffsets(self.read_to)

    patch.setattr(OwnedPartition, "_done_beyond", faulty)


def what_is_settled_is_taken_for_left(patch: Patch) -> None:
    """The list of offsets done ahead begins at what is settled, though the position is below it: output has not left yet."""

    def faulty(self: OwnedPartition, _: int, unsettled: Sequence[range], read_to: int) -> DoneOffsets:
        return right(self, self.positions.acknowledged, unsettled, read_to)

    right = OwnedPartition._done_beyond
    patch.setattr(OwnedPartition, "_done_beyond", faulty)


def done_offsets_forgotten(patch: Patch) -> None:
    """A worker that continues from a position notifies again."""

    def faulty(*arguments: Any, **named: Any) -> Takeover:
        return replace(right(*arguments, **named), done=None)

    right = guardian.partitions.plan_takeover
    patch.setattr(guardian.partitions, "plan_takeover", faulty)


def done_offsets_forgotten_by_the_second_crash(patch: Patch) -> None:
    """Offsets are forgotten that were done and that the first replay had not reached."""

    def faulty(_: OwnedPartition, position: int, unsettled: Sequence[range], read_to: int) -> DoneOffsets:
        return DoneOffsets(position).advanced(read_to, unsettled)

    patch.setattr(OwnedPartition, "_done_beyond", faulty)


def a_full_position_is_not_read_again(patch: Patch) -> None:
    """The position is not read again though the offsets done ahead fill its metadata."""

    def faulty(self: OwnedPartition) -> int | None:
        room = right(self)
        return 0 if room == 1 else room

    right = OwnedPartition.room.fget
    patch.setattr(OwnedPartition, "room", property(faulty))
