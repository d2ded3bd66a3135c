"""An order as pages, programs and the shell are told of it: texts and the words of the contract."""

import msgspec

from notification_service.console.orders.listing import ListedOrder, OrderState
from resequencer.clock import instant_text
from resequencer.order import OrderKind, OrderResult


class ToldOrder(msgspec.Struct, frozen=True):
    """An order or a proposal. `result` and `text` are those of its outcome, null without one. Instants are ISO 8601 in UTC.

    The text of a rejected proposal says who rejected it, and why.
    """

    id: str
    order: OrderKind
    partition: str
    unit: str | None
    by: str
    because: str
    at: str
    state: OrderState
    approved_by: str | None
    result: OrderResult | None
    text: str | None
    ended_at: str | None

    @property
    def result_or_state(self) -> str:
        return self.state.value if self.result is None else self.result.value


def tell_order(each: ListedOrder) -> ToldOrder:
    order = each.order
    return ToldOrder(
        order.id,
        order.kind,
        str(each.partition),
        order.unit,
        order.by,
        order.because,
        instant_text(order.at),
        each.state,
        order.approved_by,
        each.result,
        each.text,
        None if each.ended_at is None else instant_text(each.ended_at),
    )
