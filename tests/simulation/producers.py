"""The producers of the input: they leave out offsets, and their transactions hang."""

from collections.abc import Collection, Sequence
from random import Random

from harness.crashes.remembered import Remembered
from harness.service_under_test import TOPIC
from kafka.structs import TopicPartition
from simulation.fakes.broker import Entry, FakeBroker, Stored
from simulation.reading import to_stored

_COMMIT = 0.7


class Producers:
    """Each record is reported to `remembered` when it is sent, except the records of a transaction that will abort.

    No reader ever gets the records of an aborted transaction. `may_abort` is whether some transactions
    abort; their records are sent again.
    """

    def __init__(self, broker: FakeBroker, remembered: Remembered, random: Random, *, may_abort: bool) -> None:
        self._broker = broker
        self._remembered = remembered
        self._random = random
        self._may_abort = may_abort
        self._open: dict[int, _Transaction] = {}

    def send(self, lines: Sequence[tuple[int, bytes]]) -> None:
        """Send the lines to their partitions. Now and then leave out an offset, as a transaction's marker or a compaction does.

        In a partition with a hanging transaction, some lines are in the transaction, and some before or after it.
        """
        for number, line in lines:
            record, partition = to_stored(line), TopicPartition(TOPIC, number)
            transaction = self._open.get(number)
            if transaction is not None and self._random.random() < 0.5:
                self._send_in(number, transaction, record)
            else:
                self._send(number, record)
            if self._random.random() < 0.1:
                self._broker.append(partition, None)

    def hang(self, partitions: Collection[int]) -> None:
        """Keep a transaction open in these partitions, from their next record on, and end the transactions of all others."""
        for number in sorted(self._open.keys() - partitions):
            transaction = self._open.pop(number)
            self._broker.decide(TopicPartition(TOPIC, number), transaction.entries, is_commit=transaction.is_commit)
            self._remembered.is_decided(number)
            for each in () if transaction.is_commit else transaction.records:
                self._send(number, each)
        for number in sorted(partitions - self._open.keys()):
            self._open[number] = _Transaction(is_commit=not self._may_abort or self._random.random() < _COMMIT)

    def _send(self, number: int, record: Stored) -> None:
        self._remembered.came(number, record.value)
        self._broker.append(TopicPartition(TOPIC, number), record)

    def _send_in(self, number: int, transaction: "_Transaction", record: Stored) -> None:
        if transaction.is_commit:
            self._remembered.came(number, record.value)
        transaction.records.append(record)
        transaction.entries.append(self._broker.append_undecided(TopicPartition(TOPIC, number), record))
        self._remembered.hangs(number)


class _Transaction:
    def __init__(self, *, is_commit: bool) -> None:
        self.is_commit = is_commit
        self.records: list[Stored] = []
        self.entries: list[Entry] = []
