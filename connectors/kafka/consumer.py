"""A member of the consumer group: reads what it is told to read, and says what the group says."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.errors import KafkaError
from kafka.structs import ConsumerGroupMetadata, MemberState

from connectors.kafka.client import make_client
from connectors.kafka.core.fencing import Membership, Snapshot
from connectors.kafka.errors import translated
from connectors.kafka.settings import KafkaSettings
from connectors.kafka.unreadable import Unreadable
from domain.record import Partition

_JOIN_MS, _JOIN_AT_MOST_MS = 100, 2_000
_LEAVE_MS = 2_000


class Fetched(NamedTuple):
    """What a poll brought, by partition and in order, and where reading goes on in those that are read.

    `unreadable` says of partitions why they cannot be read from there on.
    """

    records: Mapping[Partition, list[Any]]
    next_offsets: Mapping[Partition, int]
    unreadable: Mapping[Partition, KafkaError]


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python ships no types.
    """Notes what comes and goes, and commits nothing: what is pending is the hand-over.

    Called on the client's own thread while the caller of `poll` waits.
    """

    def __init__(self, consumer: KafkaConsumer) -> None:
        self._consumer = consumer
        self.disturbed: set[Partition] = set()

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self.disturbed.update(Partition(*each) for each in revoked)

    def on_partitions_lost(self, lost: Iterable[TopicPartition]) -> None:
        self.disturbed.update(Partition(*each) for each in lost)

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Nothing is read before it is sought. Any place will do: without one, the client asks the group for it, and waits."""
        for each in assigned:
            self._consumer.pause(each)
            self._consumer.seek(each, 0)
            self.disturbed.add(Partition(*each))


class _Consumer(KafkaConsumer):  # type: ignore[misc]  # kafka-python ships no types.
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._unreadable = Unreadable(self._fetcher)

    def take_unreadable(self) -> dict[TopicPartition, KafkaError]:
        """Partitions that cannot be read from their positions on, and why, as far as that was found since the last call."""
        return self._unreadable.take()

    def is_joining(self) -> bool:
        """Whether the next poll has to join the group, or to go on with it.

        In kafka-python 3.0.12 the leader of a group that joins again because its topic has changed forgets that it has begun.
        Nobody would ever look for the answer, and the member be silent for good: it is reminded here.
        """
        if self.group_metadata().state == MemberState.REBALANCING:
            self._coordinator.request_rejoin()
        return bool(self._coordinator.need_rejoin())

    def resume(self, *partitions: TopicPartition) -> None:
        """What was fetched of them before they were paused is fetched again.

        kafka-python 3.0.12 sets aside what is left of it, fetches no more of such a partition, and hands it out only when it has
        nothing of any other: often never.
        """
        for each in partitions:
            if left := self._fetcher._paused_partition_records.pop(each, None):  # noqa: SLF001 - there is no other way to it.
                left.drain()
        super().resume(*partitions)


class GroupMember:
    """One member. Used from one thread."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._join_ms = _JOIN_MS
        self._consumer = make_client("the brokers", _Consumer, settings.consumer)
        self._listener = _Listener(self._consumer)
        self._consumer.subscribe([settings.topics.input], listener=self._listener)

    def poll(self, readable: Collection[Partition], max_records: int, timeout_ms: int) -> Fetched:
        """Take part in the group, and bring up to `max_records` of the partitions that are readable; none at all with 0.

        Raises:
            TransportRefused: Reading on is impossible without a person; the member is of no use any more.
        """
        with translated("reading"):
            before = self._resume(frozenset(readable) if max_records else frozenset())
            if self._consumer.is_joining():
                # A join that is answered between two polls is begun anew by the client, and with it everybody else's: the longer
                # the brokers take, the longer it is waited for.
                timeout_ms = max(timeout_ms, self._join_ms)
                self._join_ms = min(2 * self._join_ms, _JOIN_AT_MOST_MS)
            else:
                self._join_ms = _JOIN_MS
            fetched = self._consumer.poll(timeout_ms=timeout_ms, max_records=max(1, max_records))
            after = {each: self._position(each) for each in before.keys() & self._assigned() - self._listener.disturbed}
        records = {Partition(*each): found for each, found in fetched.items()}
        unreadable = {Partition(*each): error for each, error in self._consumer.take_unreadable().items()}
        moved = {each: offset for each, offset in after.items() if offset != before[each]}
        return Fetched({each: found for each, found in records.items() if each in after}, moved, unreadable)

    def take_disturbed(self) -> set[Partition]:
        """What was taken away or given since the last call, or both."""
        disturbed = self._listener.disturbed
        self._listener.disturbed = set()
        return disturbed

    def find_snapshot(self) -> Snapshot | None:
        """What the group says, None while it is not stable: in mid-rebalance the new generation goes with the old assignment."""
        before = self._consumer.group_metadata()
        assigned = self._assigned()
        after = self._consumer.group_metadata()
        if before != after or after.state != MemberState.STABLE or after.generation_id < 0 or not after.member_id:
            return None
        return Snapshot(Membership(after.generation_id, after.member_id, after.group_instance_id), assigned)

    def seek(self, partition: Partition, offset: int) -> None:
        """Read on from there, once it is readable. Without effect if the client does not have it any more."""
        if partition in self._assigned():
            self._consumer.seek(TopicPartition(*partition), offset)

    def close(self) -> None:
        """Leave the group, so that others need not wait for the session to end."""
        with translated("leaving the group"):
            self._consumer.close(autocommit=False, timeout_ms=_LEAVE_MS)

    def _resume(self, readable: frozenset[Partition]) -> dict[Partition, int]:
        """Have exactly these be fetched; where each of them stands."""
        paused = {Partition(*each) for each in self._consumer.paused()}
        assigned = self._assigned()
        for each in (assigned & paused) & readable:
            self._consumer.resume(TopicPartition(*each))
        for each in assigned - paused - readable:
            self._consumer.pause(TopicPartition(*each))
        return {each: self._position(each) for each in assigned & readable}

    def _assigned(self) -> frozenset[Partition]:
        return frozenset(Partition(*each) for each in self._consumer.assignment() or ())

    def _position(self, partition: Partition) -> int:
        position: int = self._consumer.position(TopicPartition(*partition), timeout_ms=0)
        return position


def as_group_metadata(group_id: str, membership: Membership) -> ConsumerGroupMetadata:
    """As a transaction carries it."""
    return ConsumerGroupMetadata(group_id, membership.generation, membership.member, membership.instance)
