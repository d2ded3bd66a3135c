"""Faults of the Kafka protocol, as mutations of the real code: mistakes that kafka-python invites, and forgotten steps."""

from collections.abc import Collection, Mapping, Sequence
from itertools import count
from typing import Any

from harness.planted.protocol import Patch
from kafka import errors
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata
from simulation.fakes.clients import FakeConsumer

from guardian.cycle import Cycle
from guardian.owned_partition import OwnedPartition
from guardian.ports import PublishRefused, TransportUnavailable
from guardian.sizes import PublicationSize
from notification_service.connectors.kafka.client import to_transport_error
from notification_service.connectors.kafka.consumer import Fetched, GroupMember, _Listener
from notification_service.connectors.kafka.core.fencing import Committed, Fencing, Membership, Snapshot
from notification_service.connectors.kafka.log_reader import LogReader
from notification_service.connectors.kafka.producer import TransactionalProducer
from notification_service.connectors.kafka.publisher import Publisher
from notification_service.connectors.kafka.sink import KafkaTransport
from resequencer.record import Partition


def _group_as_of_now(member: GroupMember) -> Snapshot:
    """Return the group's membership and assignment of this moment, whether the group is stable or not."""
    found = member._consumer.group_metadata()
    return Snapshot(Membership(found.generation_id, found.member_id, found.group_instance_id), member._assigned())


def _do_not_look_again(patch: Patch) -> None:
    """Keep owned partitions in a new generation without a second look at their positions."""
    patch.setattr(Fencing, "suspects", lambda _: [])
    patch.setattr(Fencing, "is_ours", lambda self, partition: partition in self._known)


def generation_minus_one_accepted(patch: Patch) -> None:
    """A transaction names no generation, like that of a removed member, and the brokers accept its offsets."""

    def without_generation(group_id: str, _: Membership) -> ConsumerGroupMetadata:
        return ConsumerGroupMetadata(group_id, -1, "", None)

    patch.setattr("notification_service.connectors.kafka.publisher.as_group_metadata", without_generation)


def snapshot_in_mid_rebalance(patch: Patch) -> None:
    """The worker believes the group while it is not stable: the new generation with the old assignment."""

    def faulty(self: GroupMember) -> Snapshot | None:
        found = _group_as_of_now(self)
        return found if found.membership.generation >= 0 else None

    patch.setattr(GroupMember, "find_snapshot", faulty)
    _do_not_look_again(patch)


def metadata_taken_when_committing(patch: Patch) -> None:
    """The group metadata is read at the commit, not at the poll: the present generation with the assignment of the poll.

    After an eviction there is no present generation.
    """

    def commit(self: KafkaTransport, *arguments: Any) -> None:
        self._publisher.consumer = self._member._consumer  # type: ignore[attr-defined, union-attr]
        right_commit(self, *arguments)

    def connect(self: Publisher) -> TransactionalProducer:
        producer = right_connect(self)
        producer.publisher = self  # type: ignore[attr-defined]
        return producer

    def send(self: TransactionalProducer, records: Any, positions: Any, _: Any) -> None:
        right_send(self, records, positions, self.publisher.consumer.group_metadata())  # type: ignore[attr-defined]

    right_commit, right_connect, right_send = KafkaTransport._commit, Publisher.connect, TransactionalProducer.commit
    patch.setattr(KafkaTransport, "_commit", commit)
    patch.setattr(Publisher, "connect", connect)
    patch.setattr(TransactionalProducer, "commit", send)


def positions_read_while_undecided(patch: Patch) -> None:
    """Positions are read as they were before an open transaction, which may still commit."""

    def faulty(self: LogReader, settings: Any) -> None:
        right(self, settings)
        self._options["isolation_level"] = "read_uncommitted"

    right = LogReader.__init__
    patch.setattr(LogReader, "__init__", faulty)


def no_second_look_after_a_new_generation(patch: Patch) -> None:
    """Another worker may have owned, in between, a partition that is still or again assigned to this one."""
    _do_not_look_again(patch)


def positions_committed_when_revoked(patch: Patch) -> None:
    """Positions are committed in the callback, as many consumers do: a current generation may commit any partition."""

    def faulty(self: Any, revoked: Sequence[Any]) -> None:
        right(self, revoked)
        consumer: FakeConsumer = self._consumer
        for each in revoked:
            if each in consumer._positions:
                consumer._broker.group.committed[each] = OffsetAndMetadata(consumer._positions[each], "", -1)

    right = _Listener.on_partitions_revoked
    patch.setattr(_Listener, "on_partitions_revoked", faulty)


def stale_position_believed(patch: Patch) -> None:
    """After a question that was not answered in time, the client returns its old answer to the next caller."""

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
            self._fencing.note_position(*each)

    patch.setattr(Publisher, "_recover", faulty)


def position_read_before_the_predecessor_is_fenced(patch: Patch) -> None:
    """The position is read before the predecessor is fenced, and while undecided: two layers guard against this fault.

    A stable position is not returned while the predecessor may still commit.
    """

    def faulty(self: Publisher) -> None:
        if not self._undecided:
            return
        found = {each: self._log.position(each, self.asked_under()) for each in self._undecided}
        self.connect()
        for partition, tried in self._undecided.items():
            self._resolve(partition, tried, found[partition])
        self._undecided = {}

    patch.setattr(Publisher, "resolve", faulty)
    positions_read_while_undecided(patch)


def another_transactional_id_each_time(patch: Patch) -> None:
    """With a new id each time, the transaction that the predecessor left open is not ended.

    Positions are read while undecided, too: two layers guard against this fault.
    """

    def faulty(self: TransactionalProducer, options: Mapping[str, Any], timeout_ms: int) -> None:
        right(self, {**options, "transactional_id": f"{options['transactional_id']}-{next(numbers)}"}, timeout_ms)

    numbers = count()
    right = TransactionalProducer.__init__
    patch.setattr(TransactionalProducer, "__init__", faulty)
    positions_read_while_undecided(patch)


def nothing_leaves_with_an_offset_that_stands(patch: Patch) -> None:
    """A deadline's notification moves no position. A transaction without a position is not fenced."""

    def faulty(self: TransactionalProducer, records: Any, positions: Mapping[Any, Committed], group: Any) -> None:
        broker = self._producer._broker  # type: ignore[attr-defined]
        stands = {each: found.offset for each, found in broker.group.committed.items()}
        moved = {each: position for each, position in positions.items() if stands.get(each) != position.offset}
        right(self, records, moved, group)

    right = TransactionalProducer.commit
    patch.setattr(TransactionalProducer, "commit", faulty)


def a_refused_publication_is_forgotten(patch: Patch) -> None:
    """The output of the refused publication does not stay pending."""

    def faulty(self: Cycle, error: PublishRefused) -> None:
        right(self, error)
        for owned in self.partitions.owned.values():
            owned.unpublished, owned.attempt = (), None

    right = Cycle._note_refused
    patch.setattr(Cycle, "_note_refused", faulty)


def a_refused_producer_used_again(patch: Patch) -> None:
    """The producer is used again after an abort, as with other clients. kafka-python sends refused offsets with the next ones."""

    def faulty(self: Publisher, producer: TransactionalProducer) -> None:
        try:
            assert not self._undecided
            producer._producer.abort_transaction()
        except (AssertionError, errors.KafkaError):
            right(self, producer)

    right = Publisher._discard
    patch.setattr(Publisher, "_discard", faulty)


def portion_cut_anew_before_its_outcome_is_known(patch: Patch) -> None:
    """The brokers stay away for so long that the outcome is never known at once."""

    def not_known(self: Publisher, positions: Mapping[Partition, Committed], error: Exception) -> None:
        raise to_transport_error("the output", error)

    def faulty(self: PublicationSize, news: Collection[OwnedPartition]) -> None:
        try:
            right(self, news)
        except TransportUnavailable:
            self.size = 1
            for owned in news:
                owned.give_up_attempt()
            raise

    right = PublicationSize.publish
    patch.setattr(Publisher, "_recover", not_known)
    patch.setattr(PublicationSize, "publish", faulty)


def what_cannot_be_read_is_stepped_over(patch: Patch) -> None:
    def faulty(self: KafkaTransport, fetched: Fetched, log_ends: Mapping[Partition, int]) -> None:
        for partition in self._fencing.sought & fetched.unreadable.keys():
            self._next_offsets[partition] += 1
            assert self._member is not None
            self._member.seek(partition, self._next_offsets[partition])

    patch.setattr(KafkaTransport, "_pause_unreadable", faulty)
