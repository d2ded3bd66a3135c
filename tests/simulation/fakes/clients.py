"""kafka-python's clients over the fake broker: what the transport calls of them, with the traps that were found in them.

Each call goes through `Line`, which may lose the request, lose the answer, deliver the request late, kill the caller, or let
other workers run meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from kafka import errors
from kafka.structs import ConsumerGroupMetadata, MemberState, OffsetAndMetadata, TopicPartition
from simulation.fakes.broker import NOBODY, FakeBroker, Stored

Answer = TypeVar("Answer")


class Line(Protocol):
    """What lies between a worker and the servers."""

    def ask(self, name: str, call: Callable[[], Answer], failure: Exception, *, may_come_late: bool = False) -> Answer:
        """What `call` answers, if it gets there and its answer gets back; else `failure`, whatever became of it."""
        ...

    def leave_on_its_way(self, call: Callable[[], object]) -> None:
        """A request that nobody waits for any more; it may arrive all the same."""
        ...

    def choose(self, count: int) -> int:
        """Below `count`, by chance."""
        ...


class Delivered(NamedTuple):
    """A record as the consumer hands it out."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


class FakeConsumer:
    """A group member if it subscribes; else it only looks at logs and positions."""

    def __init__(self, broker: FakeBroker, line: Line, options: Mapping[str, Any]) -> None:
        self._broker = broker
        self._line = line
        self._is_stable = options.get("isolation_level") == "read_committed"
        self._listener: Any = None
        self._member = NOBODY
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
        """Broker gone: an empty answer, no error."""
        try:
            self._line.ask("heartbeat", self._follow_group, errors.KafkaTimeoutError("no answer"))
            fetched, moved = self._line.ask("fetch", lambda: self._fetch(max_records), errors.KafkaTimeoutError("no answer"))
        except errors.KafkaTimeoutError:
            return {}
        self._positions |= moved
        return fetched

    def is_joining(self) -> bool:
        """No join is answered between two polls here."""
        return False

    def take_unreadable(self) -> dict[TopicPartition, errors.KafkaError]:
        found, self._unreadable = self._unreadable, {}
        return found

    def assignment(self) -> set[TopicPartition]:
        return set(self._assigned)

    def group_metadata(self) -> ConsumerGroupMetadata:
        return ConsumerGroupMetadata("group", self._generation, self._member, None, self._state)

    def close(self, **_: Any) -> None:
        if self._member != NOBODY:
            self._broker.group.remove(self._member)
            self._member = NOBODY

    def hear(self) -> None:
        """What the client's own thread learns between two polls: that it was thrown out, or that its join was answered.

        Callbacks wait for the next poll.
        """
        known = self._broker.group.members.get(self._member)
        if self._member == NOBODY:
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
            # In mid-rebalance the new generation goes with the old assignment.
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
        self._generation, self._member, self._state = -1, NOBODY, MemberState.UNJOINED

    def _tell_of_the_loss(self) -> None:
        """As lost, as revoked, or not at all: all three were seen; and what is kept may have been somebody else's since."""
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
        """The records, and where each partition that is read stands then."""
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
        """A question that was not answered in time stays: whoever asks next gets its answer, however old.

        While the position is undecided the question is repeated, and the last one may be answered when nobody waits for it.
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
    """Of a record that was sent."""

    def __init__(self) -> None:
        self.is_done = False
        self.exception: Exception | None = None

    def failed(self) -> bool:
        return self.exception is not None


class FakeProducer:
    """A transactional one. Records leave with the flush."""

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
        """Nobody is asked."""

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        """What the group refused stays here, and goes along with the next ones."""
        self._offsets.update(offsets)
        asked = dict(self._offsets)

        def add(epoch: int = self._epoch) -> None:
            self._broker.add_offsets(self._id, epoch, asked, group)

        self._line.ask("add_offsets", add, errors.KafkaTimeoutError("no answer"), may_come_late=True)
        self._offsets.clear()

    def send(self, topic: str, value: bytes, key: bytes | None, headers: Sequence[tuple[str, bytes]]) -> FakeFuture:
        future = FakeFuture()
        number = sum(key or b"") % self._broker.counts[topic]
        self._waiting.append((TopicPartition(topic, number), Stored(key, value, tuple(headers)), future))
        return future

    def flush(self) -> None:
        """Returns without an error, whatever became of the records."""
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
        """What is open stays open until its time is up, or the id is used again."""

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
    """Describes the topics, which are as they should be."""

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
