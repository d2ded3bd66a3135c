"""Runs in which operators give orders, and how they are judged: each order is executed once, and has one outcome.

When an order is read depends on the faults, so the output is not that of a run without faults. Instead, the outcomes are compared
with the orders, and with what only an order explains. A stale order says what its unit did not wait for: it must be refused.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING

from harness.crashes.outcomes import Outcome, find_loss, find_repetition
from harness.service_under_test import TOPIC
from msgspec.structs import replace
from simulation.fakes.broker import FakeBroker, Stored

from guardian.owned_partition import OwnedPartition
from guardian.ports import OrderBatch, OrderRecord, TransportUnavailable
from resequencer.batch import UnitKey
from resequencer.clock import Instant
from resequencer.dead_letter import DeadLetterReason
from resequencer.order import Order, OrderKind, OrderOutcome, OrderResult, Stage, decode_order, decode_outcome, encode_order
from resequencer.record import Partition
from resequencer.storage_port import Waits

if TYPE_CHECKING:
    from simulation.worker import Worker

OUTCOMES_TOPIC = "IPF_PROCESSING_DATA_ORDER_OUTCOMES"
_LIKELY = 0.12
_STALE = "stale"
_KINDS = (
    *(OrderKind.RELEASE, OrderKind.SKIP, OrderKind.HOLD, OrderKind.RESUME, OrderKind.EXTEND, OrderKind.RETRY) * 2,
    OrderKind.DEAD_LETTER,
    OrderKind.PAUSE,
    OrderKind.RESUME_PARTITION,
)
_PARTITIONS = (Partition(TOPIC, 0), Partition(TOPIC, 1))


class WorldOrders:
    """The orders log of each partition, and who writes to it by one seed."""

    def __init__(self, seed: int, broker: FakeBroker) -> None:
        self._random = Random(f"orders {seed}")
        self._broker = broker
        self.logs: dict[Partition, list[bytes]] = {each: [] for each in _PARTITIONS}

    def source(self, worker: Worker) -> WorldOrderSource:
        return WorldOrderSource(self.logs, self._broker, worker)

    def give_one(self, waits: Sequence[tuple[UnitKey, Waits]], now: Instant) -> None:
        """Give an order now and then: mostly one that fits what a worker says of a unit."""
        random = self._random
        if random.random() >= _LIKELY:
            return
        kind = random.choice(_KINDS)
        if kind.is_of_partition:
            self._append(random.choice(_PARTITIONS), self._order(kind, now))
            return
        if not waits:
            return
        key, seen = random.choice(waits)
        is_stale = random.random() < 0.2
        order = replace(
            self._order(kind, now, _STALE if is_stale else ""),
            unit=key.unit if random.random() < 0.95 else "an unknown unit",
            waits_for="sequence:999" if is_stale else seen.waits_for,
            since=seen.since,
            despite_backlog=random.random() < 0.4,
            for_ms=random.choice((1_000, 10_000, 60_000)),
            until=now + random.choice((1_000, 10_000, 60_000)),
            position=random.randrange(60),
        )
        self._append(key.partition, order)
        if random.random() < 0.1:
            self._append(key.partition, order)  # The writer got no answer, and wrote again.
        if random.random() < 0.1:
            self._append(key.partition, replace(order, id=f"{order.id}-proposed", stage=Stage.PROPOSED))
        if random.random() < 0.05:
            self.logs[key.partition].append(b"no order")

    def resume_all(self, now: Instant) -> None:
        """Resume all partitions: nothing else would come to an end in a paused one."""
        for each in _PARTITIONS:
            self._append(each, self._order(OrderKind.RESUME_PARTITION, now))

    def is_read(self, owned: OwnedPartition) -> bool:
        return owned.orders.next_offset == len(self.logs[owned.partition])

    def find_problem(self, outcome: Outcome) -> str | None:
        """Return what is wrong with the outcomes, or with what only an order explains; None if nothing is."""
        found = read_outcomes(self._broker)
        return (
            self._find_miscount(found)
            or _find_applied_stale_one(found)
            or _find_unexplained_release(self._broker, found)
            or _find_unexplained_letter(outcome, found)
        )

    def _find_miscount(self, found: Mapping[tuple[Partition, int], Sequence[tuple[OrderOutcome, bool]]]) -> str | None:
        wanted = {(name, at) for name, log in self.logs.items() for at, value in enumerate(log) if not _is_proposal(value)}
        for place in sorted(wanted):
            if place not in found:
                return f"no outcome of order {place[1]} of {place[0]}: {self.logs[place[0]][place[1]]!r}"
            unmarked = [each for each, is_marked in found[place] if not is_marked]
            if len(unmarked) > 1:
                return f"two outcomes of order {place[1]} of {place[0]}: {unmarked}"
        others = found.keys() - wanted
        return f"an outcome of no order: {min(others)}" if others else None

    def _order(self, kind: OrderKind, now: Instant, prefix: str = "") -> Order:
        number = sum(map(len, self.logs.values()))
        return Order(id=f"{prefix}{number}", kind=kind, by="anna", because="a simulation", at=now)

    def _append(self, partition: Partition, order: Order) -> None:
        self.logs[partition].append(encode_order(order))


class WorldOrderSource:
    """The orders as one worker reads them. Offsets are places in the log."""

    def __init__(self, logs: Mapping[Partition, Sequence[bytes]], broker: FakeBroker, worker: Worker) -> None:
        self._logs = logs
        self._broker = broker
        self._worker = worker

    def bounds(self, partition: Partition) -> range:
        return self._worker.ask("orders", lambda: range(len(self._logs[partition])), _no_answer())

    def poll(self, next_offsets: Mapping[Partition, int], most: int) -> Mapping[Partition, OrderBatch]:
        return self._worker.ask("orders", lambda: self._read(next_offsets, most), _no_answer())

    def find_without_outcome(self, partition: Partition) -> Sequence[OrderRecord]:
        def look() -> Sequence[OrderRecord]:
            known = {at for name, at in read_outcomes(self._broker) if name == partition}
            records = [OrderRecord(at, value) for at, value in enumerate(self._logs[partition])]
            return [each for each in records if each.offset not in known and not _is_proposal(each.value)]

        return self._worker.ask("orders", look, _no_answer())

    def close(self) -> None:
        """There is nothing to close."""

    def _read(self, next_offsets: Mapping[Partition, int], most: int) -> dict[Partition, OrderBatch]:
        batches: dict[Partition, OrderBatch] = {}
        for partition, offset in next_offsets.items():
            values = self._logs[partition][offset : offset + most]
            if values:
                records = tuple(OrderRecord(at, value) for at, value in enumerate(values, offset))
                batches[partition] = OrderBatch(records, offset + len(values))
        return batches


def read_outcomes(broker: FakeBroker) -> dict[tuple[Partition, int], list[tuple[OrderOutcome, bool]]]:
    """Return the published outcomes by partition and order offset, each with whether it is marked as a possible duplicate."""
    found: defaultdict[tuple[Partition, int], list[tuple[OrderOutcome, bool]]] = defaultdict(list)
    for each in broker.decided(OUTCOMES_TOPIC):
        headers = dict(each.headers)
        partition = Partition.find(headers["order-partition"].decode())
        assert partition is not None
        outcome = decode_outcome(each.value or b"")
        found[partition, outcome.order_offset].append((outcome, "possible-duplicate" in headers))
    return dict(found)


def judged_with_orders(outcome: Outcome, expected: Outcome, orders: WorldOrders) -> Outcome:
    """Nothing is lost or told twice, and the orders and their outcomes agree."""
    if outcome.problem is not None:
        return outcome
    problem = find_repetition(outcome) or find_loss(outcome, expected) or orders.find_problem(outcome)
    return outcome._replace(problem=problem)


def _find_applied_stale_one(found: Mapping[tuple[Partition, int], Sequence[tuple[OrderOutcome, bool]]]) -> str | None:
    for each in [outcome for outcomes in found.values() for outcome, _ in outcomes]:
        is_checked = each.order is not None and each.order.kind in (OrderKind.RELEASE, OrderKind.SKIP)
        if is_checked and each.order is not None and each.order.id.startswith(_STALE) and each.result is OrderResult.DONE:
            return f"executed though its unit waited for something else: {each}"
    return None


def _find_unexplained_release(
    broker: FakeBroker, found: Mapping[tuple[Partition, int], Sequence[tuple[OrderOutcome, bool]]]
) -> str | None:
    done = _done(found, OrderKind.RELEASE, OrderKind.SKIP)
    units = {each.order.unit for each in done if each.order is not None}
    for record in broker.decided("PAYMENT_STATUS_NOTIFICATION"):
        if "released-by" in dict(record.headers) and _unit_of(record) not in units:
            return f"released by an operator, and no order of {_unit_of(record)} is done: {record.headers}"
    return None


def _find_unexplained_letter(
    outcome: Outcome, found: Mapping[tuple[Partition, int], Sequence[tuple[OrderOutcome, bool]]]
) -> str | None:
    letters = Counter(each.position for each in outcome.dead if each.reason == DeadLetterReason.ORDERED)
    done = {
        f"{name}@{each.order.position}"
        for (name, _), outcomes in found.items()
        for each, _ in outcomes
        if each.order is not None and each.order.kind is OrderKind.DEAD_LETTER and each.result is OrderResult.DONE
    }
    if letters.keys() != done:
        return f"ordered dead letters {sorted(letters)}, and orders that are done {sorted(done)}"
    return None


def _done(found: Mapping[tuple[Partition, int], Sequence[tuple[OrderOutcome, bool]]], *kinds: OrderKind) -> list[OrderOutcome]:
    every = [outcome for outcomes in found.values() for outcome, _ in outcomes]
    return [each for each in every if each.order is not None and each.order.kind in kinds and each.result is OrderResult.DONE]


def _unit_of(record: Stored) -> str:
    return (record.key or b"").decode()


def _is_proposal(value: bytes) -> bool:
    return value != b"no order" and decode_order(value).stage is not None


def _no_answer() -> TransportUnavailable:
    return TransportUnavailable("no answer to orders")
