"""What operators' orders did to a unit, for its replay (docs/contract.md, section 12)."""

from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from notification_service.judgement.order_check import HELD
from resequencer.order import Order, OrderKind, OrderOutcome, OrderResult

_REPLAYED = frozenset({OrderKind.RELEASE, OrderKind.SKIP, OrderKind.DEAD_LETTER, OrderKind.RESUME})


class Act(NamedTuple):
    """An order that a replay executes between two arrivals.

    A replay that does not execute one that `is_certain` cannot be right. The others may have had no effect, or it is unknown
    whether they were executed.
    """

    order: Order
    is_certain: bool


def acts_of(outcomes: Iterable[OrderOutcome]) -> tuple[Act, ...]:
    """Return the acts in the order of their instants. The end of a hold is an act of its own, a resume."""
    acts = dict[tuple[int, int, int], Act]()
    for each in outcomes:
        order, offset = each.order, each.order_offset
        if order is None:
            continue
        if order.kind in _REPLAYED and each.result in (OrderResult.DONE, OrderResult.LOST_BY_HEAL):
            is_certain = each.result is OrderResult.DONE and order.kind in (OrderKind.RELEASE, OrderKind.SKIP)
            acts.setdefault((each.at, offset, 0), Act(order, is_certain))
        elif each.result in HELD:
            acts[order.at, offset, 0] = Act(order, is_certain=False)
            acts[each.at, offset, 1] = Act(replace(order, kind=OrderKind.RESUME), is_certain=False)
    return tuple(act for _, act in sorted(acts.items(), key=lambda each: each[0]))


def longer_by_ms(outcomes: Iterable[OrderOutcome], open_holds: Iterable[Order]) -> int:
    """Return how much longer than usual the unit may have waited, in milliseconds, because of holds and other deadlines."""
    longer_ms = sum(each.for_ms or 0 for each in open_holds)
    for each in outcomes:
        order = each.order
        if order is not None and each.result in HELD:
            longer_ms += max(0, each.at - order.at)
        elif order is not None and order.until is not None and each.result is OrderResult.DONE:
            longer_ms += max(0, order.until - each.at)
    return longer_ms
