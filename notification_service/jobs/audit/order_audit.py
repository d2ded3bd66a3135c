"""Checks the orders of a partition: each has one outcome, and was executed once."""

from collections.abc import Iterable
from typing import NamedTuple

from notification_service.judgement.order_check import (
    HELD,
    ORDER_WITHOUT_OUTCOME,
    ObservedOutcome,
    OrderDeviation,
    Place,
    by_place,
    find_deviations,
    may_last,
    name_order,
)
from resequencer.clock import Instant
from resequencer.order import Order, OrderKind, OrderOutcome, OrderResult, OrderUnreadable, decode_order
from resequencer.record import Partition


class GivenRecord(NamedTuple):
    """A record of the orders log, with its offset."""

    offset: int
    value: bytes


class AuditedOrders(NamedTuple):
    """`results` holds the result of each order, None for an order without an outcome. Proposals are not among them.

    `paused_ms` is for how long the partition was paused; None if it still is.
    """

    deviations: list[OrderDeviation]
    results: list[OrderResult | None]
    paused_ms: int | None


def audit_orders(partition: Partition, records: Iterable[GivenRecord], outcomes: Iterable[ObservedOutcome]) -> AuditedOrders:
    """Compare the orders with their outcomes.

    An order without an outcome is wrong only if a later one of its partition has one: the others may be executed yet. A hold has
    its outcome when it ends.
    """
    given = dict[Place, Order | None]()
    for each in records:
        order = _find_order(each.value)
        if order is None or order.stage is None:
            given[partition, each.offset] = order
    answered = by_place(outcomes)
    first = {place: found[0].outcome for place, found in answered.items()}
    last = max((offset for _, offset in first), default=-1)
    now = max((each.at for each in first.values()), default=0)
    deviations = list(find_deviations(given, answered, {}))
    for place, order in given.items():
        if place not in first and place[1] < last and not may_last(order, now):
            unit = None if order is None else order.unit
            deviations.append(OrderDeviation(ORDER_WITHOUT_OUTCOME, place, unit, name_order(order)))
    results = [first[place].result if place in first else None for place in given]
    return AuditedOrders(deviations, results, _paused_ms(first[place] for place in sorted(first)))


def is_done(result: OrderResult | None) -> bool:
    return result is OrderResult.DONE or result in HELD


def _paused_ms(outcomes: Iterable[OrderOutcome]) -> int | None:
    paused_ms = 0
    since: Instant | None = None
    for each in outcomes:
        if each.order is None or each.result is not OrderResult.DONE:
            continue
        if each.order.kind is OrderKind.PAUSE:
            since = each.at
        elif each.order.kind is OrderKind.RESUME_PARTITION and since is not None:
            paused_ms, since = paused_ms + max(0, each.at - since), None
    return None if since is not None else paused_ms


def _find_order(value: bytes) -> Order | None:
    try:
        return decode_order(value)
    except OrderUnreadable:
        return None
