"""The simulated broker with what a store relies on: markers that arrive late, compaction, and readers without a group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from kafka import errors
from kafka.structs import OffsetAndMetadata, TopicPartition
from simulation.fakes.broker import Entry, FakeBroker, Stored, Transaction
from simulation.fakes.clients import Delivered, FakeConsumer

_IS_LATE = 0.3


@dataclass(slots=True)
class Marker:
    """The end of a transaction in one partition, or in the group's positions (`partition` is None)."""

    transaction: Transaction
    is_commit: bool
    partition: TopicPartition | None
    entries: list[Entry]
    offsets: dict[TopicPartition, OffsetAndMetadata]


class StoreBroker(FakeBroker):
    """`decided` is called when the coordinator decides to commit a transaction; its markers may arrive much later.

    `now` gives the instant in ms. While `has_late_markers`, some markers arrive only when `let_marker_arrive` is called, or when
    their producer goes on.
    """

    def __init__(self, partitions: Mapping[str, int], group_topic: str, random: Random, now: Callable[[], int]) -> None:
        super().__init__(partitions, group_topic)
        self.has_late_markers = False
        self.late_markers: list[Marker] = []
        self.written_at: dict[int, int] = {}
        self._seen_at: dict[tuple[TopicPartition, int], int] = {}
        self.on_commit: Callable[[Transaction], None] = lambda _: None
        self._random, self._now = random, now

    def append(self, partition: TopicPartition, record: Stored | None) -> None:
        super().append(partition, record)
        self._note(partition)

    def append_undecided(self, partition: TopicPartition, record: Stored) -> Entry:
        entry = super().append_undecided(partition, record)
        self._note(partition)
        return entry

    def produce(self, transactional_id: str, epoch: int, partition: TopicPartition, record: Stored) -> None:
        super().produce(transactional_id, epoch, partition, record)
        self._note(partition)

    def init(self, transactional_id: str) -> int:
        if transactional_id in self.transactions:
            self._settle(self.transactions[transactional_id])
        epoch = super().init(transactional_id)
        self._settle(self.transactions[transactional_id])
        return epoch

    def committed(self, partition: TopicPartition, *, is_stable: bool = True) -> OffsetAndMetadata | None:
        if is_stable and any(partition in each.offsets for each in self.late_markers):
            raise errors.KafkaTimeoutError("UNSTABLE_OFFSET_COMMIT")
        return super().committed(partition, is_stable=is_stable)

    def let_marker_arrive(self) -> None:
        if self.late_markers:
            self._arrive(self._random.choice(self.late_markers))

    def let_all_markers_arrive(self) -> None:
        while self.late_markers:
            self._arrive(self.late_markers[0])

    def compact(self, partition: TopicPartition, retention_ms: int) -> None:
        """Forget what later records of the decided part have replaced, and deletions that a call has seen so long ago.

        So a reader that has read a value has as much time to read that it was deleted.
        """
        log, last = self.logs[partition], dict[bytes | None, int]()
        end = self.stable_end(partition)
        for at, entry in enumerate(log[:end]):
            if entry.record is not None and entry.is_aborted is False:
                last[entry.record.key] = at
        for at, entry in enumerate(log[:end]):
            if entry.record is None:
                continue
            is_deletion = not entry.record.value and entry.is_aborted is False
            is_over = is_deletion and self._seen_at.setdefault((partition, at), self._now()) < self._now() - retention_ms
            if entry.is_aborted or last[entry.record.key] != at or is_over:
                log[at] = Entry(None)

    def _end(self, transaction: Transaction, *, is_commit: bool) -> None:
        if not transaction.is_open:
            return
        if is_commit:
            self.on_commit(transaction)
        of_partitions: dict[TopicPartition, list[Entry]] = {}
        for partition, entry in transaction.entries:
            of_partitions.setdefault(partition, []).append(entry)
        markers = [Marker(transaction, is_commit, each, entries, {}) for each, entries in of_partitions.items()]
        markers.append(Marker(transaction, is_commit, None, [], transaction.offsets))
        transaction.entries, transaction.offsets, transaction.is_open = [], {}, False
        self._random.shuffle(markers)
        self.late_markers += markers
        for each in markers:
            if not self.has_late_markers or self._random.random() > _IS_LATE:
                self._arrive(each)

    def _checked(self, transactional_id: str, epoch: int) -> Transaction:
        transaction = super()._checked(transactional_id, epoch)
        self._settle(transaction)
        return transaction

    def _settle(self, transaction: Transaction) -> None:
        """Let all markers of a transaction arrive: before that its producer may begin nothing (CONCURRENT_TRANSACTIONS)."""
        for each in [each for each in self.late_markers if each.transaction is transaction]:
            self._arrive(each)

    def _arrive(self, marker: Marker) -> None:
        self.late_markers.remove(marker)
        for each in marker.entries:
            each.is_aborted = not marker.is_commit
        if marker.partition is not None:
            self.logs[marker.partition].append(Entry(None))
        if marker.is_commit:
            self.group.committed.update(marker.offsets)

    def _note(self, partition: TopicPartition) -> None:
        self.written_at[id(self.logs[partition][-1])] = self._now()


class FakeReader(FakeConsumer):
    """A consumer without a group. While it waits, markers may arrive."""

    def assign(self, names: Sequence[TopicPartition]) -> None:
        self._assigned = frozenset(names)

    def seek_to_beginning(self) -> None:
        self._positions = dict.fromkeys(self._assigned, 0)

    def partitions_for_topic(self, topic: str) -> set[int]:
        return set(range(self._broker.counts[topic]))

    def poll(self, timeout_ms: int, max_records: int) -> dict[TopicPartition, list[Delivered]]:
        """Return records, or nothing if the broker does not answer."""
        if self._line.choose(3) == 0:
            broker: Any = self._broker
            broker.let_marker_arrive()
        try:
            fetched, moved = self._line.ask("read", lambda: self._fetch(max_records), errors.KafkaTimeoutError("no answer"))
        except errors.KafkaTimeoutError:
            return {}
        self._positions |= moved
        return fetched
