"""Compares orders with their outcomes: each order has one outcome, and is executed once."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from guardian.headers import ORDER_PARTITION, POSSIBLE_DUPLICATE, texts_of
from resequencer.clock import Instant
from resequencer.order import PROPOSAL_MS, Order, OrderKind, OrderOutcome, OrderResult, OrderUnreadable, decode_outcome
from resequencer.record import Headers, Partition

ORDER_WITHOUT_OUTCOME = "order without an outcome"
ORDER_WITH_TWO_OUTCOMES = "order with two outcomes"
ORDER_EXECUTED_TWICE = "order executed twice"
OUTCOME_WITHOUT_ORDER = "outcome without an order"

HELD = frozenset({OrderResult.HELD_TO_ITS_END, OrderResult.HELD_UNTIL_RESUMED, OrderResult.HELD_UNTIL_BOUND})
"""How a hold ends."""

_ONCE = frozenset({OrderKind.RELEASE, OrderKind.SKIP, OrderKind.DEAD_LETTER})
"""These orders cannot be done again: the first time changes what they ask for."""

_GRACE_MS = 60_000
"""A hold or a wait begins when its order is read, which is after the order was given."""

Place = tuple[Partition, int]
"""The partition of an order, and its offset in the partition's orders log."""


class ObservedOutcome(NamedTuple):
    """A published outcome."""

    partition: Partition
    outcome: OrderOutcome
    is_possible_duplicate: bool


class OrderCounts(msgspec.Struct, frozen=True):
    """Operators' orders, without proposals. `done` includes holds that are over, `without_outcome` those that still last."""

    given: int = 0
    done: int = 0
    refused: int = 0
    lost_by_heal: int = 0
    without_outcome: int = 0
    with_two: int = 0


class OrderDeviation(NamedTuple):
    """Something wrong with an order: `name` is one of the names above, `what` says which order it is.

    `unit` is that of the order, None if it has none.
    """

    name: str
    place: Place
    unit: str | None
    what: str


def observe_outcome(headers: Headers, value: bytes) -> ObservedOutcome:
    """Read the record of an outcome.

    Raises:
        OrderUnreadable: The record is not an outcome, or does not name its partition.
    """
    texts = texts_of(headers)
    partition = Partition.find(texts.get(ORDER_PARTITION, ""))
    if partition is None:
        raise OrderUnreadable(f"no header {ORDER_PARTITION}")
    return ObservedOutcome(partition, decode_outcome(value), POSSIBLE_DUPLICATE in texts)


def by_place(outcomes: Iterable[ObservedOutcome]) -> Mapping[Place, Sequence[ObservedOutcome]]:
    """Return the outcomes of each order, in the order of publishing."""
    found: defaultdict[Place, list[ObservedOutcome]] = defaultdict(list)
    for each in outcomes:
        found[each.partition, each.outcome.order_offset].append(each)
    return found


def find_deviations(
    given: Mapping[Place, Order | None], outcomes: Mapping[Place, Sequence[ObservedOutcome]], begins: Mapping[Partition, int]
) -> Iterator[OrderDeviation]:
    """Yield what is wrong with the outcomes. An order that cannot be read is None.

    Orders before `begins` are gone from their log.
    """
    for place, found in outcomes.items():
        first, known = found[0].outcome, given.get(place)
        if sum(not each.is_possible_duplicate for each in found) > 1:
            yield OrderDeviation(ORDER_WITH_TWO_OUTCOMES, place, _unit(first.order), name_order(first.order))
        is_gone = place[1] < begins.get(place[0], 0)
        if not is_gone and (None if known is None else known.id) != (None if first.order is None else first.order.id):
            yield OrderDeviation(OUTCOME_WITHOUT_ORDER, place, _unit(first.order), f"{first.result}: {name_order(first.order)}")
    done = dict[str, Place]()
    for place, found in sorted(outcomes.items(), key=lambda each: each[0]):
        first = found[0].outcome
        if first.order is None or first.order.kind not in _ONCE or first.result is not OrderResult.DONE:
            continue
        before = done.setdefault(first.order.id, place)
        if before != place:
            what = f"{name_order(first.order)} was done there and at {before[1]}"
            yield OrderDeviation(ORDER_EXECUTED_TWICE, place, first.order.unit, what)


def may_last(order: Order | None, now: Instant, backlog_wait_ms: int) -> bool:
    """Return whether the order may be in force or wait without an outcome.

    A hold has its outcome at its end. A release or a skip may wait for unread records for `backlog_wait_ms`.
    """
    if order is None:
        return False
    waits = order.kind in (OrderKind.RELEASE, OrderKind.SKIP) and not order.despite_backlog
    longest_ms = order.for_ms or 0 if order.kind is OrderKind.HOLD else backlog_wait_ms if waits else None
    if longest_ms is None:
        return False
    # The instant of an approved order is that of its proposal.
    return now <= order.at + longest_ms + _GRACE_MS + (0 if order.approved_by is None else PROPOSAL_MS)


def name_order(order: Order | None) -> str:
    """Return a name for people."""
    if order is None:
        return "a record that is no order"
    return f"{order.kind} {order.id}" + (f" for {order.unit}" if order.unit is not None else "")


def _unit(order: Order | None) -> str | None:
    return None if order is None else order.unit
