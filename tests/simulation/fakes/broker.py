"""A broker without a network: logs, transactions and a consumer group, as far as the exactly-once protocol relies on them.

Its rules are those of a real broker, including observed ones that are not documented: it accepts offsets under generation -1,
and it does not check whether a member that commits under the current generation owns the partition.
Everything happens at once and in one thread. `tests/simulation/fakes/clients.py` loses requests and answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka import errors
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

NO_MEMBER = ""


class Stored(NamedTuple):
    """A sent record, as a log holds it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


@dataclass(slots=True)
class Entry:
    """One offset of a log. `record` is None for the marker of a transaction; `is_aborted` is None while it is undecided."""

    record: Stored | None
    is_aborted: bool | None = False


@dataclass(slots=True)
class Transaction:
    """The open transaction of a transactional id."""

    epoch: int = 0
    is_open: bool = False
    entries: list[tuple[TopicPartition, Entry]] = field(default_factory=list)
    offsets: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)


@dataclass(slots=True)
class Member:
    """A member as the group knows it.

    `owned` are the partitions that the member named when it joined, `assigned` those that it has from `generation` on.
    """

    generation: int = 0
    owned: frozenset[TopicPartition] = frozenset()
    assigned: frozenset[TopicPartition] = frozenset()
    has_joined: bool = False


class Group:
    """A group with cooperative rebalances: a partition that moves is revoked in one generation and assigned in the next."""

    def __init__(self, partitions: Sequence[TopicPartition]) -> None:
        self._partitions = partitions
        self._names = 0
        self.generation = 0
        self.is_rebalancing = False
        self.members: dict[str, Member] = {}
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}

    def add(self) -> str:
        self._names += 1
        name = f"member-{self._names}"
        self.members[name] = Member()
        self.is_rebalancing = True
        return name

    def remove(self, name: str) -> None:
        """Remove a member that left or was silent for a session."""
        if self.members.pop(name, None) is not None:
            self.is_rebalancing = True
            self._finish_when_all_are_here()

    def join(self, name: str, owned: frozenset[TopicPartition]) -> None:
        """Take part in the rebalance that is under way."""
        member = self.members[name]
        member.owned, member.has_joined = owned, True
        self._finish_when_all_are_here()

    def check(self, group: ConsumerGroupMetadata) -> None:
        """Raise CommitFailedError if the group refuses offsets from a member with this metadata."""
        if group.generation_id < 0 and group.member_id == NO_MEMBER:
            return
        if group.member_id not in self.members or group.generation_id != self.generation:
            raise errors.CommitFailedError(f"generation {group.generation_id} of {group.member_id}: it is {self.generation}")

    def _finish_when_all_are_here(self) -> None:
        if not self.is_rebalancing or not all(each.has_joined for each in self.members.values()):
            return
        self.generation += 1
        self.is_rebalancing = self._assign()
        for member in self.members.values():
            member.generation, member.has_joined = self.generation, False

    def _assign(self) -> bool:
        """Assign the partitions. Return whether one was revoked, so that another rebalance must assign it."""
        if not self.members:
            return False
        fair = -(-len(self._partitions) // len(self.members))
        kept: dict[str, list[TopicPartition]] = {}
        owned: set[TopicPartition] = set()
        for name, member in self.members.items():
            # A member that was away may still name partitions that another member received meanwhile.
            kept[name] = sorted(member.owned - owned)[:fair]
            owned |= member.owned
        free = [each for each in self._partitions if each not in owned]
        for partition in free:
            min(kept.values(), key=len).append(partition)
        for name, member in self.members.items():
            member.assigned = frozenset(kept[name])
        return any(member.owned - member.assigned for member in self.members.values())


class FakeBroker:
    """`watch` is called with the position before and after each one that becomes effective. At most `max_at_once` records of a
    transaction arrive in time. `is_damaged` is whether the next records of a partition cannot be read at the moment.
    """

    def __init__(self, partitions: Mapping[str, int], group_topic: str) -> None:
        self.max_at_once = 1 << 30
        self.is_damaged: Callable[[TopicPartition], bool] = lambda _: False
        self.logs = {
            TopicPartition(topic, number): list[Entry]() for topic, count in partitions.items() for number in range(count)
        }
        self.counts = dict(partitions)
        self.group = Group([each for each in self.logs if each.topic == group_topic])
        self.transactions: dict[str, Transaction] = {}
        self.watch: Callable[[TopicPartition, OffsetAndMetadata | None, OffsetAndMetadata], None] = lambda *_: None

    # What producers of the input and readers of the output do

    def append(self, partition: TopicPartition, record: Stored | None) -> None:
        """Append a record outside of any transaction. None appends an offset without a record, as compaction leaves behind."""
        self.logs[partition].append(Entry(record))

    def append_undecided(self, partition: TopicPartition, record: Stored) -> Entry:
        """Append a record of a producer's transaction, which is open until `decide` gets all of its records."""
        entry = Entry(record, is_aborted=None)
        self.logs[partition].append(entry)
        return entry

    def decide(self, partition: TopicPartition, entries: Sequence[Entry], *, is_commit: bool) -> None:
        """End the transaction of these records."""
        for each in entries:
            each.is_aborted = not is_commit
        self.logs[partition].append(Entry(None))

    def decided(self, topic: str) -> list[Stored]:
        """Return what a `read_committed` reader of all partitions of the topic gets."""
        logs = [log for each, log in self.logs.items() if each.topic == topic]
        return [entry.record for log in logs for entry in log if entry.record is not None and entry.is_aborted is False]

    def stable_end(self, partition: TopicPartition) -> int:
        """Return the last stable offset."""
        log = self.logs[partition]
        return next((at for at, entry in enumerate(log) if entry.is_aborted is None), len(log))

    # Transactions

    def init(self, transactional_id: str) -> int:
        """Abort the open transaction of this id, fence its owner, and return the new epoch."""
        transaction = self.transactions.setdefault(transactional_id, Transaction())
        self._end(transaction, is_commit=False)
        transaction.epoch += 1
        return transaction.epoch

    def produce(self, transactional_id: str, epoch: int, partition: TopicPartition, record: Stored) -> None:
        transaction = self._checked(transactional_id, epoch)
        if len(transaction.entries) >= self.max_at_once:
            raise errors.KafkaTimeoutError("the time for the transaction is up")
        entry = Entry(record, is_aborted=None)
        self.logs[partition].append(entry)
        transaction.entries.append((partition, entry))
        transaction.is_open = True

    def add_offsets(
        self,
        transactional_id: str,
        epoch: int,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
    ) -> None:
        transaction = self._checked(transactional_id, epoch)
        transaction.is_open = True
        self.group.check(group)
        transaction.offsets.update(offsets)

    def end(self, transactional_id: str, epoch: int, *, is_commit: bool) -> None:
        self._end(self._checked(transactional_id, epoch), is_commit=is_commit)

    def time_out(self, transactional_id: str) -> None:
        """Abort a transaction that was open for too long."""
        transaction = self.transactions[transactional_id]
        if transaction.is_open:
            self._end(transaction, is_commit=False)
            transaction.epoch += 1

    def committed(self, partition: TopicPartition, *, is_stable: bool = True) -> OffsetAndMetadata | None:
        """Return the group's position. Without `is_stable`, return it even while a transaction is about to change it.

        Raises:
            KafkaTimeoutError: A transaction with this position is undecided.
        """
        if is_stable and any(partition in each.offsets for each in self.transactions.values()):
            raise errors.KafkaTimeoutError("UNSTABLE_OFFSET_COMMIT")
        return self.group.committed.get(partition)

    def reset(self, partition: TopicPartition, position: OffsetAndMetadata | None) -> None:
        """Set the position, as an operator does while the group has no members. None deletes the position."""
        assert not self.group.members
        self.group.committed.pop(partition, None)
        if position is not None:
            self.group.committed[partition] = position

    def _checked(self, transactional_id: str, epoch: int) -> Transaction:
        transaction = self.transactions[transactional_id]
        if transaction.epoch != epoch:
            raise errors.ProducerFencedError(f"epoch {epoch} of {transactional_id}: it is {transaction.epoch}")
        return transaction

    def _end(self, transaction: Transaction, *, is_commit: bool) -> None:
        if not transaction.is_open:
            return
        for _, entry in transaction.entries:
            entry.is_aborted = not is_commit
        for partition in {partition for partition, _ in transaction.entries}:
            self.logs[partition].append(Entry(None))
        if is_commit:
            for partition, position in transaction.offsets.items():
                self.watch(partition, self.group.committed.get(partition), position)
                self.group.committed[partition] = position
        transaction.entries, transaction.offsets, transaction.is_open = [], {}, False
