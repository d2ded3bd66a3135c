"""Checks operators' orders against their outcomes, and says which deviations from the expected output the orders explain."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from guardian.ports import GivenOrder, OrderRecord
from notification_service.connectors.line_format import Defect, decode_line
from notification_service.judgement.order_check import (
    HELD,
    ORDER_WITH_TWO_OUTCOMES,
    ObservedOutcome,
    OrderCounts,
    by_place,
    find_deviations,
    may_last,
    name_order,
    observe_outcome,
)
from notification_service.simulator.verify.verdict import Deviation, Finding
from resequencer.clock import Instant
from resequencer.order import Order, OrderKind, OrderResult, OrderUnreadable, decode_order
from resequencer.record import Partition

_EFFECTIVE = frozenset({OrderResult.DONE, OrderResult.LOST_BY_HEAL})
"""The results after which the order took effect, or may have taken effect."""


class OrdersLog(NamedTuple):
    """The orders of all partitions, as read at `read_at`, after the outcomes that they are compared with.

    `given` may include proposals. `begins` is where the log of a partition begins: retention deletes orders before it. An order
    may wait for unread records for `backlog_wait_ms`.
    """

    given: Sequence[GivenOrder]
    begins: Mapping[Partition, int]
    without_outcome: Sequence[tuple[Partition, OrderRecord]]
    read_at: Instant
    backlog_wait_ms: int = 600_000


class Explained(msgspec.Struct, frozen=True):
    """What the executed orders explain.

    `released` are the units of which an operator released or skipped something; `disturbed` are these and all other units whose
    waits an order changed. `dead_letters` are the positions (partition and offset) of envelopes that an order made dead letters,
    `set_aside` counts these orders by unit.
    """

    released: frozenset[str] = frozenset()
    disturbed: frozenset[str] = frozenset()
    dead_letters: frozenset[tuple[int, int]] = frozenset()
    set_aside: Mapping[str, int] = msgspec.field(default_factory=dict)


NOTHING = Explained()


class OrdersCheck(NamedTuple):
    """`open` counts the orders that have no outcome yet; among them are holds that still last, and orders that wait."""

    counts: OrderCounts
    explained: Explained
    findings: tuple[Finding, ...]
    open: int


def read_outcome(line: bytes) -> ObservedOutcome | Defect:
    """Read an outcome from a line of `orders.jsonl` without its newline."""
    read = decode_line(line)
    if isinstance(read, Defect):
        return read
    try:
        return observe_outcome(read.headers, read.content)
    except OrderUnreadable as error:
        return Defect(str(error))


def explain(outcomes: Iterable[ObservedOutcome]) -> Explained:
    """Return what orders with these outcomes explain."""
    released, disturbed = set[str](), set[str]()
    dead_lettered: dict[tuple[int, int], str] = {}
    for partition, outcome, _ in outcomes:
        order = outcome.order
        if order is None or order.unit is None or outcome.result not in _EFFECTIVE | HELD:
            continue
        disturbed.add(order.unit)
        if order.kind in (OrderKind.RELEASE, OrderKind.SKIP):
            released.add(order.unit)
        elif order.kind is OrderKind.DEAD_LETTER and order.position is not None:
            dead_lettered[partition.number, order.position] = order.unit
    return Explained(frozenset(released), frozenset(disturbed), frozenset(dead_lettered), Counter(dead_lettered.values()))


def check_orders(log: OrdersLog, outcomes: Sequence[ObservedOutcome]) -> OrdersCheck:
    """Compare all orders with all outcomes. `outcomes` were read before the log."""
    given = {(each.partition, each.offset): each.order for each in log.given if each.order.stage is None}
    answered = by_place(outcomes)
    deviations = list(find_deviations(given, answered, log.begins))
    findings = [_found(Deviation(each.name), each.place, each.what) for each in deviations]
    lasting = [each for each in log.without_outcome if may_last(_find_order(each[1]), log.read_at, log.backlog_wait_ms)]
    missing = [each for each in log.without_outcome if each not in lasting]
    findings += [
        _found(Deviation.ORDER_WITHOUT_OUTCOME, (name, each.offset), name_order(_find_order(each))) for name, each in missing
    ]
    results = [found[0].outcome.result for found in answered.values()]
    unreadable = sum(result is OrderResult.REFUSED_UNREADABLE for result in results)
    unanswered_unreadable = sum(_find_order(each) is None for _, each in log.without_outcome)
    counts = OrderCounts(
        given=len(given) + unreadable + unanswered_unreadable,
        done=sum(each is OrderResult.DONE or each in HELD for each in results),
        refused=sum(each.is_refusal for each in results),
        lost_by_heal=sum(each is OrderResult.LOST_BY_HEAL for each in results),
        without_outcome=len(log.without_outcome),
        with_two=sum(each.name == ORDER_WITH_TWO_OUTCOMES for each in deviations),
    )
    return OrdersCheck(counts, explain(outcomes), tuple(findings), len(log.without_outcome))


def _find_order(record: OrderRecord) -> Order | None:
    try:
        return decode_order(record.value)
    except OrderUnreadable:
        return None


def _found(deviation: Deviation, place: tuple[Partition, int], what: str) -> Finding:
    return Finding(deviation, f"orders of {place[0]} at {place[1]}", what)
