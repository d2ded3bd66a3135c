"""Orders: giving one, or proposing it where a second person has to approve, and what came of each."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from guardian.ports import GivenOrder, GivenOutcome, OrderBook
from resequencer.clock import Instant, instant_text
from resequencer.errors import ResequencerError
from resequencer.order import Order, OrderKind, OrderOutcome, OrderResult, Stage, find_missing, is_proposal_open, is_same_person
from resequencer.record import Partition
from resequencer.storage_port import Waits


class OrderState(StrEnum):
    """A proposal waits, was rejected, or expired. An order has no outcome yet (as a hold that lasts), or is over."""

    PROPOSED = "proposed"
    REJECTED = "rejected"
    EXPIRED = "expired"
    GIVEN = "given"
    OVER = "over"


class ListedOrder(msgspec.Struct, frozen=True):
    """An order, or a proposal that did not become one, with its result and the words of its outcome if it has one.

    The text of one that waits for unread records says for how many.
    """

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


class ToldOrder(msgspec.Struct, frozen=True):
    """An order or a proposal. `result` and `text` are those of its outcome, null without one. Instants are ISO 8601 in UTC.

    The text of a rejected proposal says who rejected it, and why; that of an order which waits for unread records, for how many.
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


def order_answer(each: ListedOrder) -> ToldOrder:
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


class NotGiven(ResequencerError):
    """The order was not given; the text says why and what to do."""


class Wish(NamedTuple):
    """What a person wants: the kind of the order, why, and what the kind needs beside the unit."""

    kind: OrderKind
    because: str
    for_ms: int | None = None
    until: Instant | None = None
    position: int | None = None
    despite_backlog: bool = False


def make_order(wish: Wish, by: str, now: Instant, order_id: str, unit: str | None, waits: Waits | None) -> Order:
    """Return the order. `waits` is what the unit waits for as the person saw it.

    Raises:
        NotGiven: Something that the kind needs is missing.
    """
    if not wish.because.strip():
        raise NotGiven("give a reason; it is stored with the order")
    order = Order(
        id=order_id,
        kind=wish.kind,
        by=by,
        because=wish.because,
        at=now,
        unit=unit,
        waits_for=None if waits is None else waits.waits_for,
        since=None if waits is None else waits.since,
        despite_backlog=wish.despite_backlog,
        for_ms=wish.for_ms,
        until=wish.until,
        position=wish.position,
    )
    missing = find_missing(order)
    if missing in ("waits-for", "since"):
        raise NotGiven(f"nothing waits in unit {unit}: there is nothing to {wish.kind.value}")
    if missing is not None:
        raise NotGiven(f"{wish.kind.value} needs {missing}")
    return order


def give(book: OrderBook, partition: Partition, order: Order, approval: Collection[str]) -> Order:
    """Append the order, or its proposal if its kind needs a second person. Return what was appended."""
    given = replace(order, stage=Stage.PROPOSED) if order.kind in approval else order
    book.append(partition, given)
    return given


def approve(book: OrderBook, proposal: ListedOrder, by: str) -> Order:
    """Append the order of a proposal, approved by this person.

    Raises:
        NotGiven: The person has made the proposal, or it does not wait for an approval any more, or another decision came first.
    """
    _check(proposal)
    if is_same_person(proposal.order.by, by):
        raise NotGiven("another person than the one who proposed it has to approve it")
    return _decide(book, proposal, replace(proposal.order, stage=None, approved_by=by))


def reject(book: OrderBook, proposal: ListedOrder, by: str, because: str, now: Instant) -> Order:
    """Append the end of a proposal. The person who made it may take it back so.

    Raises:
        NotGiven: It does not wait for an approval any more, or another decision came first.
    """
    _check(proposal)
    return _decide(book, proposal, replace(proposal.order, stage=Stage.REJECTED, by=by, because=because, at=now))


def _decide(book: OrderBook, proposal: ListedOrder, decision: Order) -> Order:
    """Append a decision. Two people may decide at the same moment: the log says who came first, and the owner goes by it."""
    offset = book.append(proposal.partition, decision)
    before = (
        each
        for each in book.orders([proposal.partition], proposal.order.at)
        if each.order.id == decision.id and each.order.is_decision and each.offset < offset
    )
    first = min(before, key=lambda each: each.offset, default=None)
    if first is not None:
        raise NotGiven(f"it was {first.order.decision} a moment before: that counts, and yours has no effect")
    return decision


def _check(proposal: ListedOrder) -> None:
    if proposal.state is not OrderState.PROPOSED:
        raise NotGiven(f"it does not wait for an approval any more: {proposal.state.value}")
