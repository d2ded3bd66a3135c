"""Judges each transaction of a store when it is committed, and the copies of the values whenever a worker has ended its work."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from harness.simulated_stores.broker import StoreBroker
from harness.simulated_stores.commands import PARTITIONS, partition_of
from harness.simulated_stores.recomputed import (
    CLOSED,
    COMPLETE,
    ENDED,
    INCOMPLETE,
    OPEN,
    Group,
    Recomputed,
    Told,
    Value,
    read_report,
)
from kafka.structs import TopicPartition
from simulation.fakes.broker import Stored, Transaction

from guardian.headers import DUE, GROUP_ID
from notification_service.aggregation.files import ValuesFile

COMMANDS, VALUES, REPORTS, LETTERS = "FACTS", "VALUES", "REPORTS", "DEAD_LETTERS"
_TOLD = (OPEN, COMPLETE, INCOMPLETE, CLOSED)


class Judge:
    """`problem` is the first promise that was broken. `values` are the committed ones, by partition and key, with their `due`.

    `completions` counts the reports, `applied` the offsets of commands that were passed.
    """

    def __init__(self, broker: StoreBroker, now: Callable[[], int]) -> None:
        self._broker, self._now = broker, now
        self.problem: str | None = None
        self.recomputed = [Recomputed() for _ in range(PARTITIONS)]
        self.values: list[dict[str, Value]] = [{} for _ in range(PARTITIONS)]
        self._history: list[list[tuple[int, str, Value | None]]] = [[] for _ in range(PARTITIONS)]
        self.positions = [0] * PARTITIONS
        self.completions = self.applied = 0
        broker.on_commit = self._see

    def blame(self, problem: str) -> None:
        self.problem = self.problem or problem

    # Transactions

    def _see(self, transaction: Transaction) -> None:
        try:
            self._judge(transaction)
        except (KeyError, ValueError, TypeError) as error:
            self.blame(f"what was committed cannot be read: {error!r}")

    def _judge(self, transaction: Transaction) -> None:
        moved = {each.partition: found.offset for each, found in transaction.offsets.items()}
        records = [(each, entry.record) for each, entry in transaction.entries if entry.record is not None]
        for number, offset in sorted(moved.items()):
            reports = [record for each, record in records if each.topic == REPORTS and _number_of(each, record) == number]
            self._judge_partition(number, offset, self._values_of(transaction, number), reports)
        stray = [record for each, record in records if each.topic in (VALUES, REPORTS) and _number_of(each, record) not in moved]
        if stray:
            self.blame(f"{stray[0].key!r} left without the position of its partition")

    def _judge_partition(self, number: int, offset: int, values: list[tuple[int, Stored]], reports: list[Stored]) -> None:
        before, self.positions[number] = self.positions[number], offset
        if offset < before:
            self.blame(f"the position of {COMMANDS}-{number} went back from {before} to {offset}")
        known = dict(self.values[number])
        for at, record in values:
            self._put(number, at, record)
        expected = self._after_commands(number, before, offset) if offset > before else self._after_instants(number, known)
        self.completions += len(reports)
        self.applied += offset - before
        self._compare_reports(reports, expected)
        self.compare_values(number)

    def _values_of(self, transaction: Transaction, number: int) -> list[tuple[int, Stored]]:
        """Return the values in a transaction with their offsets."""
        name = TopicPartition(VALUES, number)
        ours = {id(entry) for each, entry in transaction.entries if each == name}
        found = [(at, entry.record) for at, entry in enumerate(self._broker.logs[name]) if id(entry) in ours]
        return [(at, record) for at, record in found if record is not None]

    def _put(self, number: int, at: int, record: Stored) -> None:
        key, due = (record.key or b"").decode(), dict(record.headers).get(DUE)
        value = (record.value, None if due is None else int(due)) if record.value else None
        self._history[number].append((at, key, value))
        if value is None:
            self.values[number].pop(key, None)
        else:
            self.values[number][key] = value

    def _after_commands(self, number: int, before: int, offset: int) -> list[Told]:
        """Apply the commands that the transaction has passed."""
        expected = []
        for at, entry in enumerate(self._broker.logs[TopicPartition(COMMANDS, number)][before:offset], before):
            if entry.is_aborted is None:
                self.blame(f"{COMMANDS}-{number}@{at} was passed, and is undecided")
            if entry.record is not None and entry.is_aborted is False:
                expected.append(self.recomputed[number].apply(entry.record, at))
        return [each for each in expected if each is not None]

    def _after_instants(self, number: int, known: Mapping[str, Value]) -> list[Told]:
        """Take over what followed from instants, if they were due and all commands of before were applied."""
        expected = []
        groups, values = self.recomputed[number].groups, self.values[number]
        for key in [each for each in groups if values.get(each) != known.get(each)]:
            due = known[key][1] if key in known else None
            self._check_due(number, key, due)
            found = self._after_instant(key, groups[key], values)
            if key not in values:
                del groups[key]
            if found is not None:
                expected.append(found)
        return expected

    def _check_due(self, number: int, key: str, due: int | None) -> None:
        if due is None or due > self._now():
            self.blame(f"{key} changed without a command, and was not due")
            return
        unread = self._broker.logs[TopicPartition(COMMANDS, number)][self.positions[number] :]
        if any(entry.record is not None and self._broker.written_at[id(entry)] < due for entry in unread):
            self.blame(f"the instant of {key} came before commands that were there by then")

    def _after_instant(self, key: str, group: Group, values: Mapping[str, Value]) -> Told | None:
        if key not in values:
            if group.state != ENDED or group.members:
                self.blame(f"{key} was deleted before its time")
            return None
        head = json.loads(values[key][0])
        if head["state"] == ENDED:
            if head.get("is_swept"):
                group.members.clear()
            group.state = ENDED
            return None
        if group.state == OPEN and head["state"] == INCOMPLETE:
            return group.report(key, INCOMPLETE)
        if group.state in _TOLD and group.content() != group.kept:
            return group.report(key, group.state)
        return None

    def _compare_reports(self, reports: list[Stored], expected: list[Told]) -> None:
        found = [read_report(each) for each in reports]
        if sorted(found, key=_order) != sorted(expected, key=_order):
            self.blame(f"reported: {sorted(found, key=_order)}, expected: {sorted(expected, key=_order)}")

    # Values

    def compare_values(self, number: int) -> None:
        """Compare the committed values with those of the recomputed groups."""
        for each in self.recomputed[number].find_differences(self.values[number]):
            self.blame(each)

    # Copies

    def compare_copy(self, number: int, path: Path) -> None:
        """Check a copy: it lacks nothing that was committed below the offset that it notes, and has nothing else.

        A value that was committed later may be in it already. One that was compacted away may be missing: it has a successor.
        """
        file = ValuesFile(path, is_copy=True)
        try:
            noted = file.note("next-offset")
            rows = file._rows("SELECT key, member, body, due FROM value") if noted is not None else []
        finally:
            file.close()
        if noted is None:
            return
        copied = {f"{key}/{member}" if member else key: (body, due) for key, member, body, due in rows}
        allowed: dict[str, list[Value | None]] = {}
        log = self._broker.logs[TopicPartition(VALUES, number)]
        last = {key: at for at, key, _ in self._history[number]}
        for at, key, value in self._history[number]:
            is_needed = at < int(noted) and (log[at].record is not None or at == last[key])
            allowed[key] = [*([] if is_needed else allowed.get(key, [None])), value]
        for key in copied.keys() | allowed.keys():
            if copied.get(key) not in allowed.get(key, [None]):
                self.blame(f"the copy {path} notes {noted} and has of {key}: {copied.get(key)}, allowed: {allowed.get(key)}")

    # The end

    def judge_end(self) -> None:
        """Check that the reader of committed records finds all of it: values as judged, and each report once."""
        for number in range(PARTITIONS):
            last: dict[bytes | None, bytes | None] = {}
            for entry in self._broker.logs[TopicPartition(VALUES, number)]:
                if entry.record is not None and entry.is_aborted is False:
                    last[entry.record.key] = entry.record.value
            found = {(key or b"").decode(): value for key, value in last.items() if value}
            if found != {key: body for key, (body, _) in self.values[number].items()}:
                self.blame(f"the topic's values of partition {number} are not those that were judged")
        letters = sum(each.letters for each in self.recomputed)
        if len(self._broker.decided(LETTERS)) != letters:
            self.blame(f"there are {len(self._broker.decided(LETTERS))} dead letters, expected: {letters}")
        if len(self._broker.decided(REPORTS)) != self.completions:
            self.blame(f"there are {len(self._broker.decided(REPORTS))} reports, judged: {self.completions}")

    def judge_all_commands(self) -> None:
        """Recompute everything from the committed commands alone, in a run in which nothing was due."""
        for number in range(PARTITIONS):
            self.recomputed[number] = Recomputed()
            self._after_commands(number, 0, len(self._broker.logs[TopicPartition(COMMANDS, number)]))
            self.compare_values(number)
        reports = [read_report(each) for each in self._broker.decided(REPORTS)]
        groups = [group for each in self.recomputed for group in each.groups.items()]
        expected = [(key, number) for key, group in groups for number in range(1, group.reports + 1)]
        if sorted((each.key, each.number) for each in reports) != sorted(expected):
            self.blame(f"reports: {sorted((each.key, each.number) for each in reports)}, expected: {sorted(expected)}")


def _order(each: Told) -> tuple[str, int, str]:
    return each.key, each.number, str(each.statuses)


def _number_of(at: TopicPartition, record: Stored) -> int | None:
    """Return the partition of commands that a record follows from; None if it does not say it."""
    if at.topic == VALUES:
        return at.partition
    if at.topic == REPORTS:
        return partition_of(dict(record.headers)[GROUP_ID].decode())
    return None
