"""A member of the consumer group: reads the partitions asked for, and reports the group's assignment."""

from collections.abc import Collection, Iterable, Mapping
from threading import Event
from typing import Any, NamedTuple

from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.errors import KafkaError
from kafka.structs import ConsumerGroupMetadata, MemberState
from kafka.util import Timer

from notification_service.connectors.kafka.client import make_client, translated
from notification_service.connectors.kafka.core.fencing import FIXED, Membership, Snapshot
from notification_service.connectors.kafka.record_batch import Unreadable
from notification_service.connectors.kafka.settings import KafkaSettings
from resequencer.record import Partition

_JOIN_MS, _JOIN_AT_MOST_MS = 100, 2_000
_LEAVE_MS = 2_000


class Fetched(NamedTuple):
    """The result of a poll: the records by partition and in order, and the offset at which each partition continues.

    `unreadable` holds the error of each partition that cannot be read from its offset on.
    """

    records: Mapping[Partition, list[Any]]
    next_offsets: Mapping[Partition, int]
    unreadable: Mapping[Partition, KafkaError]


class PollWait:
    """The wait of a poll. `ended` is set by an answer of the brokers, and by a wake, which lasts until a poll has ended for it.

    Clear `ended` before the look at what has come and at `is_woken`.
    """

    def __init__(self) -> None:
        self.is_woken = False
        self.ended = Event()

    def wake(self) -> None:
        """End the wait, from any thread."""
        self.is_woken = True
        self.ended.set()


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python ships no types.
    """Notes revoked and assigned partitions. It commits nothing: the pending output is the hand-over to the next owner.

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
        """Pause new partitions until the service seeks. The seek to 0 keeps the client from asking the group for an offset."""
        for each in assigned:
            self._consumer.pause(each)
            self._consumer.seek(each, 0)
            self.disturbed.add(Partition(*each))


class _Consumer(KafkaConsumer):  # type: ignore[misc]  # kafka-python ships no types.
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._unreadable = Unreadable(self._fetcher)
        self._fetcher.fetch_records = self._fetch
        self.wait = PollWait()

    def poll(self, timeout_ms: int, max_records: int) -> dict[TopicPartition, list[Any]]:
        """As the client's, but a wake ends it.

        A join is not cut short: the client would begin it again once it is answered.
        """
        timer = Timer(timeout_ms)
        while not (records := self._poll_once(timer, max_records)) and not timer.expired and not self.wait.is_woken:
            pass
        if timeout_ms > 0:
            self.wait.is_woken = False
        return records  # type: ignore[no-any-return]  # kafka-python ships no types.

    def _fetch(
        self, max_records: int, *, update_offsets: bool, timeout_ms: float
    ) -> tuple[dict[TopicPartition, list[Any]], bool]:
        """Return what has come, and ask for more, in place of the client's own method: only an answer ends its wait.

        The second value is whether the client has to sleep, which nothing would end.
        """
        fetcher, wait = self._fetcher, self.wait
        wait.ended.clear()
        records, has_more = fetcher.fetched_records(max_records, update_offsets=update_offsets)
        if not has_more:
            fetcher.send_fetches()
        if records or wait.is_woken:
            return records, False
        reset = fetcher._reset_task  # noqa: SLF001 - The client offers no other way.
        awaited = [*fetcher._fetch_futures, *([reset] if reset is not None and not reset.is_done else [])]  # noqa: SLF001
        for each in awaited:
            each.add_both(lambda _: wait.ended.set())
        wait.ended.wait((timeout_ms if awaited else min(timeout_ms, self.config["retry_backoff_ms"])) / 1000)
        return fetcher.fetched_records(max_records, update_offsets=update_offsets)[0], False

    def take_unreadable(self) -> dict[TopicPartition, KafkaError]:
        """Return the partitions found unreadable since the last call, each with its error."""
        return self._unreadable.take()

    def continue_join(self) -> bool:
        """Keep a join that is under way alive, and return whether the next poll has to join the group.

        In kafka-python 3.0.12 a group leader that rejoins because its topic changed forgets that its rejoin is under way. The
        answer would never be read, and the member would stay silent for good; so the rejoin is requested again here.
        """
        if self.group_metadata().state == MemberState.REBALANCING:
            self._coordinator.request_rejoin()
        return bool(self._coordinator.need_rejoin())

    def resume(self, *partitions: TopicPartition) -> None:
        """Resume the partitions and drop what was fetched before they were paused; it is fetched again.

        kafka-python 3.0.12 keeps such records and fetches no more of the partition. It returns them only if no other
        partition has records, which is often never.
        """
        for each in partitions:
            if kept := self._fetcher._paused_partition_records.pop(each, None):  # noqa: SLF001 - The client offers no other way.
                kept.drain()
        super().resume(*partitions)


class GroupMember:
    """One member of the consumer group. Used from one thread. Another one may end the `wait` of a poll."""

    def __init__(self, settings: KafkaSettings, wait: PollWait) -> None:
        self._join_ms = _JOIN_MS
        self._consumer = make_client("the brokers", _Consumer, settings.consumer)
        self._consumer.wait = wait
        self._listener = _Listener(self._consumer)
        self._choose(settings)

    def poll(self, readable: Collection[Partition], max_records: int, timeout_ms: int) -> Fetched:
        """Take part in the group, and return up to `max_records` records of the `readable` partitions; with 0 none.

        Raises:
            TransportRefused: Reading cannot continue without an operator; this member cannot be used any more.
        """
        with translated("reading"):
            before = self._resume(frozenset(readable) if max_records else frozenset())
            if self._consumer.continue_join():
                # A join that is answered between two polls is begun again by the client, which rebalances the whole group again.
                # So the wait for the answer doubles for as long as the brokers take longer.
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
        """Return the partitions that were revoked or assigned since the last call, and reset them."""
        disturbed = self._listener.disturbed
        self._listener.disturbed = set()
        return disturbed

    def find_snapshot(self) -> Snapshot | None:
        """Return the group's assignment; None while the group is not stable.

        During a rebalance the client already shows the new generation, but still the old assignment.
        """
        before = self._consumer.group_metadata()
        assigned = self._assigned()
        after = self._consumer.group_metadata()
        if before != after or after.state != MemberState.STABLE or after.generation_id < 0 or not after.member_id:
            return None
        return Snapshot(Membership(after.generation_id, after.member_id, after.group_instance_id), assigned)

    def seek(self, partition: Partition, offset: int) -> None:
        """Read on from `offset` once the partition is readable. No effect if the client no longer has the partition."""
        if partition in self._assigned():
            self._consumer.seek(TopicPartition(*partition), offset)

    def close(self) -> None:
        """Leave the group, so that the others need not wait for the session's time-out."""
        with translated("leaving the group"):
            self._consumer.close(autocommit=False, timeout_ms=_LEAVE_MS)

    def _choose(self, settings: KafkaSettings) -> None:
        self._consumer.subscribe([settings.topics.input], listener=self._listener)

    def _resume(self, readable: frozenset[Partition]) -> dict[Partition, int]:
        """Have exactly the `readable` partitions fetched; return the position of each."""
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


class FixedMember(GroupMember):
    """Reads fixed partitions of the input. It joins no group, and needs no right on one."""

    def find_snapshot(self) -> Snapshot:
        return Snapshot(FIXED, self._assigned())

    def _choose(self, settings: KafkaSettings) -> None:
        names = [TopicPartition(settings.topics.input, each) for each in settings.partitions or ()]
        self._consumer.assign(names)
        self._listener.on_partitions_assigned(names)


def as_group_metadata(group_id: str, membership: Membership) -> ConsumerGroupMetadata:
    """Return the membership in the form that a transaction carries."""
    return ConsumerGroupMetadata(group_id, membership.generation, membership.member, membership.instance)
