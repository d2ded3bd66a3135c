"""The protocol's own faults, as mutations of the real code: what kafka-python tempts one to do, and what one forgets."""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata
from msgspec.structs import replace
from planted_faults import Fault, Patch
from simulation.fake_broker import FakeBroker
from simulation.shared_storage import SharedPartitionStore, SharedStorage

import guardian.ownership
from connectors.kafka_custody import Committed, Custody, Membership, Snapshot
from connectors.kafka_errors import to_transport_error
from connectors.kafka_log import LogReader
from connectors.kafka_member import GroupMember
from connectors.kafka_producer import TransactionalProducer
from connectors.kafka_publisher import Publisher
from connectors.port import PartitionOutput, Position, PublishRefused
from domain.errors import OwnershipLost
from domain.record import Partition
from guardian.cycle import Cycle
from guardian.held_partition import HeldPartition
from guardian.ownership import Ownership


def no_compare_and_set(patch: Patch) -> None:
    patch.setattr("storage.none.is_done", lambda *_: False)
    patch.setattr("storage.none.check_owner", lambda *_: None)


def token_counted_instead_of_drawn(patch: Patch) -> None:
    """After the storage went back in time a number comes again."""

    def faulty(self: SharedStorage, partition: Partition) -> SharedPartitionStore:
        kept = self._memory.partitions.get(partition)
        token = str(int(kept.header.token) + 1 if kept else 1)
        self._random_token = lambda: token
        return right(self, partition)

    right = SharedStorage.open
    patch.setattr(SharedStorage, "open", faulty)


def published_though_the_commit_was_refused(patch: Patch) -> None:
    def faulty(self: SharedPartitionStore, commit: Any) -> None:
        try:
            right(self, commit)
        except OwnershipLost:
            self._header = replace(self._header, commit=commit.number)

    right = SharedPartitionStore.commit
    patch.setattr(SharedPartitionStore, "commit", faulty)


def _snapshot(member: GroupMember) -> Snapshot:
    found = member._consumer.group_metadata()
    return Snapshot(Membership(found.generation_id, found.member_id, found.group_instance_id), member._assigned())


def generation_minus_one_accepted(patch: Patch) -> None:
    patch.setattr(GroupMember, "find_snapshot", _snapshot)
    patch.setattr("connectors.kafka_publisher.as_group_metadata", _as_group_metadata)
    patch.setattr(Custody, "suspects", lambda _: [])
    patch.setattr(Custody, "is_ours", lambda self, partition: partition in self._known)


def _as_group_metadata(group_id: str, membership: Membership) -> ConsumerGroupMetadata:
    return ConsumerGroupMetadata(group_id, -1, "", None)


def snapshot_in_mid_rebalance(patch: Patch) -> None:
    def faulty(self: GroupMember) -> Snapshot | None:
        found = _snapshot(self)
        return found if found.membership.generation >= 0 else None

    patch.setattr(GroupMember, "find_snapshot", faulty)
    patch.setattr(Custody, "note_group", _noting_the_generation_alone)


def _noting_the_generation_alone(self: Custody, snapshot: Snapshot | None, _: Any) -> None:
    """What is held moves to the new generation without a second look."""
    self.snapshot = snapshot or self.snapshot
    if self.snapshot is not None:
        for partition, known in self._known.items():
            self._known[partition] = known._replace(membership=self.snapshot.membership)


def metadata_taken_when_committing(patch: Patch) -> None:
    """Instead of with the poll: the generation of now for the assignment of then."""

    def remember(self: GroupMember, *arguments: Any) -> None:
        right(self, *arguments)
        members.append(self)

    members: list[GroupMember] = []
    right = GroupMember.__init__
    patch.setattr(GroupMember, "__init__", remember)
    patch.setattr("connectors.kafka_publisher.as_group_metadata", lambda *_: members[-1]._consumer.group_metadata())
    patch.setattr(Custody, "suspects", lambda _: [])
    patch.setattr(Custody, "is_ours", lambda self, partition: partition in self._known)


def positions_read_while_undecided(patch: Patch) -> None:
    patch.setattr(FakeBroker, "committed", lambda self, partition: self.group.committed.get(partition))


def no_second_look_after_a_new_generation(patch: Patch) -> None:
    patch.setattr(Custody, "suspects", lambda _: [])
    patch.setattr(Custody, "is_ours", lambda self, partition: partition in self._known)
    patch.setattr(Custody, "note_group", _noting_the_generation_alone)


def positions_committed_when_revoked(patch: Patch) -> None:
    def faulty(self: Any, revoked: Sequence[Any]) -> None:
        right(self, revoked)
        consumer = self._consumer
        for each in revoked:
            if each in consumer._positions:
                consumer._broker.group.committed[each] = OffsetAndMetadata(consumer._positions[each], "", -1)

    from connectors.kafka_member import _Listener

    right = _Listener.on_partitions_revoked
    patch.setattr(_Listener, "on_partitions_revoked", faulty)


def stale_position_believed(patch: Patch) -> None:
    def faulty(self: LogReader, partition: Partition, asked_under: Any) -> Committed | None:
        self._unanswered.clear()
        return right(self, partition, asked_under)

    right = LogReader.position
    patch.setattr(LogReader, "position", faulty)


def unknown_outcome_taken_as_failed(patch: Patch) -> None:
    def faulty(self: Publisher, positions: Mapping[Partition, Committed], error: Exception) -> None:
        self._undecided = {}
        raise to_transport_error("the output", error)

    patch.setattr(Publisher, "_recover", faulty)


def unknown_outcome_taken_as_done(patch: Patch) -> None:
    def faulty(self: Publisher, positions: Mapping[Partition, Committed], _: Exception) -> None:
        self._undecided = {}
        for each in positions.items():
            self._custody.note_position(*each)

    patch.setattr(Publisher, "_recover", faulty)


def position_read_before_the_predecessor_is_fenced(patch: Patch) -> None:
    def faulty(self: Publisher) -> None:
        if not self._undecided:
            return
        found = {each: self._log.position(each, self.asked_under()) for each in self._undecided}
        self.connect()
        for partition, tried in self._undecided.items():
            self._settle(partition, tried, found[partition])
        self._undecided = {}

    patch.setattr(Publisher, "settle", faulty)
    patch.setattr(FakeBroker, "committed", lambda self, partition: self.group.committed.get(partition))


def another_transactional_id_each_time(patch: Patch) -> None:
    """And so nobody ends what the predecessor left open: its commit may still arrive."""

    def faulty(self: TransactionalProducer, options: Mapping[str, Any], timeout_ms: int) -> None:
        right(self, {**options, "transactional_id": f"{options['transactional_id']}-{next(numbers)}"}, timeout_ms)

    numbers = count()
    right = TransactionalProducer.__init__
    patch.setattr(TransactionalProducer, "__init__", faulty)
    patch.setattr(FakeBroker, "committed", lambda self, partition: self.group.committed.get(partition))


def nothing_leaves_with_an_offset_that_stands(patch: Patch) -> None:
    """A deadline's notification moves no position: without one, a transaction is not fenced."""

    def faulty(self: TransactionalProducer, sendings: Any, positions: Mapping[Any, Committed], group: Any) -> None:
        broker = self._producer._broker  # type: ignore[attr-defined]
        stands = {each: found.offset for each, found in broker.group.committed.items()}
        moved = {each: position for each, position in positions.items() if stands.get(each) != position.offset}
        right(self, sendings, moved, group)

    right = TransactionalProducer.commit
    patch.setattr(TransactionalProducer, "commit", faulty)


def no_first_position(patch: Patch) -> None:
    def faulty(*arguments: Any, **named: Any) -> Any:
        return replace(right(*arguments, **named), is_new=False)

    right = guardian.ownership.plan_takeover
    patch.setattr(guardian.ownership, "plan_takeover", faulty)


def stopped_by_a_stranger(patch: Patch) -> None:
    """A partition that was lost once is never taken over again."""

    def lose(self: Ownership, partition: Partition, error: Exception) -> None:
        right_lose(self, partition, error)
        lost.add((id(self), partition))

    def try_to_take_over(self: Ownership, partition: Partition) -> None:
        if (id(self), partition) not in lost:
            right_try(self, partition)

    lost: set[tuple[int, Partition]] = set()
    right_lose, right_try = Ownership.lose, Ownership._try_to_take_over
    patch.setattr(Ownership, "lose", lose)
    patch.setattr(Ownership, "_try_to_take_over", try_to_take_over)


def a_refused_publication_is_forgotten(patch: Patch) -> None:
    def faulty(self: Cycle, error: PublishRefused) -> None:
        right(self, error)
        for held in self.ownership.held.values():
            held.unpublished = ()

    right = Cycle._note_refused
    patch.setattr(Cycle, "_note_refused", faulty)


def healed_by_whoever_comes(patch: Patch) -> None:
    """A zombie may heal: nobody asks the group before."""

    def faulty(self: Ownership, held: HeldPartition, _: Position) -> None:
        commit = held.healing_commit(self._tools.random_token())
        held.store.commit(commit)
        held.note_committed(commit, (), self._tools.clock.now())
        self.heals += 1
        self.is_healing = False

    patch.setattr(Ownership, "_heal", faulty)


def numbers_kept_when_healing(patch: Patch) -> None:
    def faulty(self: HeldPartition, attempt: str) -> Any:
        return self._commit(attempt)

    patch.setattr(HeldPartition, "healing_commit", faulty)


def position_goes_back_when_healing(patch: Patch) -> None:
    def faulty(self: HeldPartition) -> PartitionOutput:
        output = right(self)
        return replace(output, position=replace(output.position, offset=self.positions.acknowledged))

    right = HeldPartition.output
    patch.setattr(HeldPartition, "output", faulty)


AMONG_CRASHES: tuple[Fault, ...] = (
    no_compare_and_set,
    published_though_the_commit_was_refused,
    generation_minus_one_accepted,
    snapshot_in_mid_rebalance,
    metadata_taken_when_committing,
    positions_read_while_undecided,
    no_second_look_after_a_new_generation,
    positions_committed_when_revoked,
    stale_position_believed,
    unknown_outcome_taken_as_failed,
    unknown_outcome_taken_as_done,
    position_read_before_the_predecessor_is_fenced,
    another_transactional_id_each_time,
    nothing_leaves_with_an_offset_that_stands,
    stopped_by_a_stranger,
    a_refused_publication_is_forgotten,
)
WHEN_FORGETTING: tuple[Fault, ...] = (
    token_counted_instead_of_drawn,
    no_first_position,
    healed_by_whoever_comes,
    numbers_kept_when_healing,
    position_goes_back_when_healing,
)
