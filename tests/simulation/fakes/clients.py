"""kafka-python's clients over the fake broker: the methods that the transport calls, with the known traps of the real clients.

Each call goes through `Line`. It may lose the request, lose the answer, deliver the request late, kill the caller, or let other
workers run meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from kafka import errors
from kafka.structs import ConsumerGroupMetadata, MemberState, OffsetAndMetadata, TopicPartition
from simulation.fakes.broker import NO_MEMBER, FakeBroker, Stored

Answer = TypeVar("Answer")


class Line(Protocol):
    """The connection between a worker and the servers."""

    def ask(self, name: str, call: Callable[[], Answer], failure: Exception, *, may_come_late: bool = False) -> Answer:
        """Return the answer of `call`. If request or answer is lost, raise `failure`, whether or not `call` took effect."""
        ...

    def leave_on_its_way(self, call: Callable[[], object]) -> None:
        """Keep a request that its caller gave up; it may still arrive."""
        ...

    def choose(self, count: int) -> int:
        """Return a random number below `count`."""
        ...


class Delivered(NamedTuple):
    """A record as the consumer hands it out."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp: int | None = None  # This broker notes no time.


class FakeConsumer:
    """A group member if it subscribes; else it only reads logs and positions."""

    def __init__(self, broker: FakeBroker, line: Line, options: Mapping[str, Any]) -> None:
        self._broker = broker
        self._line = line
        self._is_stable = options.get("isolation_level") == "read_committed"
        self._listener: Any = None
        self._member = NO_MEMBER
        self._generation = -1
        self._state = MemberState.UNJOINED
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._unanswered: dict[TopicPartition, list[OffsetAndMetadata | None]] = {}
        self._unreadable: dict[TopicPartition, errors.KafkaError] = {}

    # The group

    def subscribe(self, _: Sequence[str], listener: Any) -> None:
        self._listener = listener

    def poll(self, timeout_ms: int, max_records: int) -> dict[TopicPartition, list[Delivered]]:
        """Poll. If the broker is away, return nothing and raise no error."""
        try:
            self._line.ask("heartbeat", self._follow_group, errors.KafkaTimeoutError("no answer"))
            fetched, moved = self._line.ask("fetch", lambda: self._fetch(max_records), errors.KafkaTimeoutError("no answer"))
        except errors.KafkaTimeoutError:
            return {}
        self._positions |= moved
        return fetched

    def continue_join(self) -> bool:
        """Return False: this fake answers no join between two polls."""
        return False

    def take_unreadable(self) -> dict[TopicPartition, errors.KafkaError]:
        found, self._unreadable = self._unreadable, {}
        return found

    def assignment(self) -> set[TopicPartition]:
        return set(self._assigned)

    def group_metadata(self) -> ConsumerGroupMetadata:
        return ConsumerGroupMetadata("group", self._generation, self._member, None, self._state)

    def close(self, **_: Any) -> None:
        if self._member != NO_MEMBER:
            self._broker.group.remove(self._member)
            self._member = NO_MEMBER

    def hear(self) -> None:
        """Learn what the client's own thread learns between two polls: that it was removed, or that its join was answered.

        Callbacks wait for the next poll.
        """
        known = self._broker.group.members.get(self._member)
        if self._member == NO_MEMBER:
            return
        if known is None:
            self._fall_out()
        elif self._state == MemberState.REBALANCING and known.generation > max(0, self._generation):
            self._generation = known.generation

    def _follow_group(self) -> None:
        group = self._broker.group
        if self._member not in group.members:
            self._fall_out()
            self._tell_of_the_loss()
            self._member, self._state = group.add(), MemberState.REBALANCING
        member = group.members[self._member]
        if member.generation > max(0, self._generation) and self._line.choose(2):
            # During a rebalance the client has the new generation with the old assignment.
            self._generation = member.generation
            return
        if self._state == MemberState.REBALANCING and member.generation and not member.has_joined:
            self._generation = member.generation
            self._take(member.assigned)
        if group.is_rebalancing and not member.has_joined:
            self._state = MemberState.REBALANCING
            group.join(self._member, self._assigned)

    def _take(self, assigned: frozenset[TopicPartition]) -> None:
        revoked, came = self._assigned - assigned, assigned - self._assigned
        self._assigned = assigned
        for each in revoked:
            self._positions.pop(each, None)
            self._paused.discard(each)
        if revoked:
            self._listener.on_partitions_revoked(revoked)
        if came:
            self._listener.on_partitions_assigned(came)
        self._state = MemberState.STABLE

    def _fall_out(self) -> None:
        self._generation, self._member, self._state = -1, NO_MEMBER, MemberState.UNJOINED

    def _tell_of_the_loss(self) -> None:
        """Report the partitions as lost, as revoked, or not at all: the real client was seen to do all three.

        If it does not report them, it keeps partitions that may have had another owner meanwhile.
        """
        if not self._assigned:
            return
        how = self._line.choose(3)
        if how == 0:
            self._listener.on_partitions_lost(self._assigned)
        elif how == 1:
            self._listener.on_partitions_revoked(self._assigned)
        if how < 2:
            self._assigned, self._positions, self._paused = frozenset(), {}, set()

    # Reading

    def _fetch(self, max_records: int) -> tuple[dict[TopicPartition, list[Delivered]], dict[TopicPartition, int]]:
        """Return the records, and the position of each partition that was read."""
        fetched: dict[TopicPartition, list[Delivered]] = {}
        moved: dict[TopicPartition, int] = {}
        left = max_records
        for each in sorted(self._assigned - self._paused):
            if self._positions[each] < self._end(each) and self._broker.is_damaged(each):
                self._unreadable[each] = errors.CorruptRecordError("failed crc check")
                continue
            found, moved[each] = self._read(each, left)
            if found:
                fetched[each] = found
                left -= len(found)
        return fetched, moved

    def _read(self, partition: TopicPartition, at_most: int) -> tuple[list[Delivered], int]:
        log, end, found = self._broker.logs[partition], self._end(partition), list[Delivered]()
        at = self._positions[partition]
        while at < end and (len(found) < at_most or log[at].record is None):
            record = log[at].record
            if record is not None and (log[at].is_aborted is False or not self._is_stable):
                found.append(Delivered(at, record.key, record.value, record.headers))
            at += 1
        return found, at

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._positions[partition] = offset

    def position(self, partition: TopicPartition, **_: Any) -> int:
        return self._positions[partition]

    def pause(self, *partitions: TopicPartition) -> None:
        self._paused.update(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self._paused.difference_update(partitions)

    def paused(self) -> set[TopicPartition]:
        return set(self._paused)

    # Looking

    def beginning_offsets(self, partitions: Iterable[TopicPartition], **_: Any) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def end_offsets(self, partitions: Sequence[TopicPartition], **_: Any) -> dict[TopicPartition, int]:
        def look() -> dict[TopicPartition, int]:
            return {each: self._end(each) for each in partitions}

        return self._line.ask("ends", look, errors.KafkaTimeoutError("no answer"))

    def _end(self, partition: TopicPartition) -> int:
        return self._broker.stable_end(partition) if self._is_stable else len(self._broker.logs[partition])

    def committed(self, partition: TopicPartition, **_: Any) -> OffsetAndMetadata | None:
        """Return the committed position.

        A request that was not answered in time is kept: the next call gets its answer, however old. While the position is
        undecided the client repeats the request, and the last one may be answered after the call has ended.
        """
        if old := self._unanswered.pop(partition, None):
            return old[0]
        answer = self._unanswered[partition] = list[OffsetAndMetadata | None]()

        def question() -> None:
            answer[:] = [self._broker.committed(partition, is_stable=self._is_stable)]

        self._line.ask("committed", self._repeated(question), errors.KafkaTimeoutError("no answer"), may_come_late=True)
        del self._unanswered[partition]
        return answer[0]

    def _repeated(self, question: Callable[[], None]) -> Callable[[], None]:
        def ask() -> None:
            try:
                question()
            except errors.KafkaTimeoutError:
                self._line.leave_on_its_way(question)
                raise

        return ask


class FakeFuture:
    """The future of a sent record."""

    def __init__(self) -> None:
        self.is_done = False
        self.exception: Exception | None = None

    def failed(self) -> bool:
        return self.exception is not None


class FakeProducer:
    """A transactional producer. Records leave with the flush."""

    def __init__(self, broker: FakeBroker, line: Line, transactional_id: str) -> None:
        self._broker = broker
        self._line = line
        self._id = transactional_id
        self._epoch = -1
        self._offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        self._waiting: list[tuple[TopicPartition, Stored, FakeFuture]] = []

    def init_transactions(self) -> None:
        def init() -> None:
            self._epoch = self._broker.init(self._id)

        self._line.ask("init_transactions", init, errors.KafkaTimeoutError("no answer"), may_come_late=True)

    def begin_transaction(self) -> None:
        """Do nothing: the client asks no broker here."""

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        """Send the offsets. Offsets that the group refused stay here, and are sent with the next ones."""
        self._offsets.update(offsets)
        asked = dict(self._offsets)

        def add(epoch: int = self._epoch) -> None:
            self._broker.add_offsets(self._id, epoch, asked, group)

        self._line.ask("add_offsets", add, errors.KafkaTimeoutError("no answer"), may_come_late=True)
        self._offsets.clear()

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Sequence[tuple[str, bytes]],
        partition: int | None = None,
        _timestamp: int | None = None,
    ) -> FakeFuture:
        future = FakeFuture()
        number = sum(key or b"") % self._broker.counts[topic] if partition is None else partition
        self._waiting.append((TopicPartition(topic, number), Stored(key, value, tuple(headers)), future))
        return future

    def partitions_for(self, topic: str) -> range:
        return range(self._broker.counts[topic])

    def flush(self) -> None:
        """Send the waiting records. Raises no error, whether or not they arrived."""
        waiting, self._waiting = self._waiting, []
        for partition, record, future in waiting:
            self._produce(partition, record, future)

    def commit_transaction(self) -> None:
        def commit(epoch: int = self._epoch) -> None:
            self._broker.end(self._id, epoch, is_commit=True)

        self._line.ask("commit_transaction", commit, errors.KafkaTimeoutError("no answer"), may_come_late=True)

    def abort_transaction(self) -> None:
        def abort(epoch: int = self._epoch) -> None:
            self._broker.end(self._id, epoch, is_commit=False)

        self._line.ask("abort", abort, errors.KafkaTimeoutError("no answer"), may_come_late=True)

    def close(self, **_: Any) -> None:
        """Do nothing: an open transaction stays open until it times out, or until its id is used again."""

    def _produce(self, partition: TopicPartition, record: Stored, future: FakeFuture) -> None:
        def produce(epoch: int = self._epoch) -> None:
            self._broker.produce(self._id, epoch, partition, record)

        try:
            self._line.ask("produce", produce, errors.KafkaTimeoutError("no answer"), may_come_late=True)
        except errors.ProducerFencedError as error:
            future.exception = errors.InvalidProducerEpochError(str(error))
        except errors.KafkaTimeoutError:
            return
        future.is_done = True


class FakeAdmin:
    """Describes the topics, which have no problems."""

    DEFAULT_CONFIG: Mapping[str, object] = {}

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker

    def describe_topics(self, names: Sequence[str]) -> list[dict[str, Any]]:
        identity = "00000000-0000-0000-0000-00000000000{}"
        return [
            {
                "name": name,
                "error_code": 0,
                "topic_id": identity.format(1 + list(self._broker.counts).index(name)),
                "partitions": [None] * self._broker.counts[name],
                "authorized_operations": (),
            }
            for name in names
        ]

    def describe_configs(self, *_: Any, **__: Any) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        """There is nothing to close."""
