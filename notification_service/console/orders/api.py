"""Orders: what was ordered and what came of it; giving one, and deciding about a proposal."""

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.exceptions import HTTPException
from starlette.requests import Request

from notification_service.console.api.operation import Operation, change_of
from notification_service.console.api.requests import read_instant
from notification_service.console.context import Console
from notification_service.console.orders.book import decide_proposal, give_order, opened, recent_orders
from notification_service.console.orders.giving import Wish
from notification_service.console.orders.listing import OrderState
from notification_service.console.orders.order_answer import ToldOrder, tell_order
from notification_service.events.identifiers import shown
from resequencer.clock import Instant
from resequencer.order import LONGEST_HOLD_MS, Order, OrderKind, Stage
from resequencer.record import Partition

Because = Annotated[str, Meta(min_length=1, max_length=1_000)]
Name = Annotated[str, Meta(min_length=1, max_length=1_024)]


class OrdersQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which orders to list: all that is given must hold. `since` is an instant (ISO 8601), by default a week ago."""

    unit: str | None = None
    kind: OrderKind | None = None
    state: OrderState | None = None
    since: str = ""
    limit: Annotated[int, Meta(ge=1, le=500)] = 100


class OrdersAnswer(msgspec.Struct, frozen=True):
    """The newest orders that match, and how many match."""

    orders: tuple[ToldOrder, ...]
    matching: int


class NewOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An order, as docs/contract.md, section 12, has it. Without `unit` it is for the partition itself.

    A release and a skip need `waits_for` and `since` of the unit as it was seen. `for_ms` is for a hold, `until` (ISO 8601) for
    an extension, `position` (an offset) for a dead letter.
    """

    order: OrderKind
    partition: Name
    because: Because
    unit: Name | None = None
    waits_for: str | None = None
    since: str | None = None
    despite_backlog: bool = False
    for_ms: Annotated[int, Meta(ge=1, le=LONGEST_HOLD_MS)] | None = None
    until: str | None = None
    position: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None


class Given(msgspec.Struct, frozen=True):
    """The order's id. `is_proposal` if another person has to approve it first."""

    id: str
    is_proposal: bool


class Approval(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The id of the proposal."""

    id: Name


class Rejection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The id of the proposal, and why it is not approved."""

    id: Name
    because: Because


def order_operations(console: Console) -> list[Operation]:
    def orders(request: Request, query: OrdersQuery) -> OrdersAnswer:
        del request
        with opened(console) as book:
            listed = recent_orders(console, book, read_instant("since", query.since))
        found = [
            each
            for each in listed
            if query.unit in (None, each.order.unit)
            and query.kind in (None, each.order.kind)
            and query.state in (None, each.state)
        ]
        return OrdersAnswer(tuple(map(tell_order, found[: query.limit])), len(found))

    def order(request: Request, new: NewOrder) -> Given:
        partition = Partition.find(new.partition)
        if partition is None:
            raise HTTPException(400, f"partition is {shown(new.partition)}; a topic and a number, such as EVENTS-0, is expected")
        wish = Wish(new.order, new.because, new.for_ms, _instant("until", new.until), new.position, new.despite_backlog)
        since = _instant("since", new.since)
        seen = None if new.waits_for is None or since is None else (new.waits_for, since)
        return _given(give_order(console, request, wish, partition, None if new.order.is_of_partition else new.unit, seen))

    def approve(request: Request, approval: Approval) -> Given:
        return _given(decide_proposal(console, request, approval.id, is_approved=True, because=""))

    def reject(request: Request, rejection: Rejection) -> Given:
        return _given(decide_proposal(console, request, rejection.id, is_approved=False, because=rejection.because))

    return [
        Operation("/orders", "orders", orders, OrdersAnswer, "The orders, and what came of each", OrdersQuery),
        change_of("/order", "order", order, Given, "Give an order, or propose it", NewOrder),
        change_of("/order/approve", "approve-order", approve, Given, "Approve what another person proposed", Approval),
        change_of("/order/reject", "reject-order", reject, Given, "Reject or take back a proposal", Rejection),
    ]


def _instant(name: str, text: str | None) -> Instant | None:
    return None if not text else read_instant(name, text)


def _given(order: Order) -> Given:
    return Given(order.id, order.stage is Stage.PROPOSED)
