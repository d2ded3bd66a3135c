"""What came of orders: proposals, approvals and outcomes, joined by the order's id."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from guardian.ports import GivenOrder, GivenOutcome
from resequencer.clock import Instant
from resequencer.order import Order, OrderOutcome, OrderResult, Stage, is_proposal_open
from resequencer.record import Partition


class OrderState(StrEnum):
    """A proposal waits, was rejected, or expired. An order has no outcome yet (as a hold that lasts), or is over."""

    PROPOSED = "proposed"
    REJECTED = "rejected"
    EXPIRED = "expired"
    GIVEN = "given"
    OVER = "over"


class ListedOrder(msgspec.Struct, frozen=True):
    """An order, or a proposal that did not become one, with its result and the words of its outcome if it has one."""

    partition: Partition
    order: Order
    state: OrderState
    offset: int
    result: OrderResult | None = None
    text: str | None = None
    ended_at: Instant | None = None


def list_orders(given: Iterable[GivenOrder], outcomes: Iterable[GivenOutcome], now: Instant) -> Sequence[ListedOrder]:
    """Join them; the newest first. A proposal that became an order is listed as this order alone.

    Of several decisions on a proposal the first one in the log counts. A later one is listed only if it was executed all
    the same, as by owners of before.
    """
    ended = {(each.partition, each.outcome.order_offset, _id_of(each)): each.outcome for each in outcomes}
    orders: list[ListedOrder] = []
    proposals: dict[tuple[Partition, str], ListedOrder] = {}
    decided: set[tuple[Partition, str]] = set()
    for partition, offset, order in sorted(given, key=lambda each: each.offset):
        key = (partition, order.id)
        is_late = order.is_decision and key in decided
        if order.is_decision:
            decided.add(key)
        if order.stage is Stage.PROPOSED:
            state = OrderState.PROPOSED if is_proposal_open(order.at, now) else OrderState.EXPIRED
            proposals.setdefault(key, ListedOrder(partition, order, state, offset))
        elif order.stage is Stage.REJECTED:
            known = proposals.get(key)
            if known is not None and not is_late:
                text = f"{order.decision}: {order.because}"
                proposals[key] = msgspec.structs.replace(known, state=OrderState.REJECTED, text=text, ended_at=order.at)
        else:
            listed = _listed(partition, offset, order, ended)
            if not is_late or listed.result not in (None, OrderResult.REFUSED_DECIDED):
                proposals.pop(key, None)
                orders.append(listed)
    return sorted((*orders, *proposals.values()), key=lambda each: each.order.at, reverse=True)


def _listed(
    partition: Partition, offset: int, order: Order, ended: Mapping[tuple[Partition, int, str], OrderOutcome]
) -> ListedOrder:
    outcome = ended.get((partition, offset, order.id))
    if outcome is None:
        return ListedOrder(partition, order, OrderState.GIVEN, offset)
    return ListedOrder(partition, order, OrderState.OVER, offset, outcome.result, outcome.text, outcome.at)


def _id_of(each: GivenOutcome) -> str:
    return "" if each.outcome.order is None else each.outcome.order.id
