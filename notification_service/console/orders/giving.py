"""Gives an order to the owner of a partition, or proposes it where a second person has to approve."""

from collections.abc import Collection
from typing import NamedTuple

from msgspec.structs import replace

from guardian.ports import OrderBook
from notification_service.console.orders.listing import ListedOrder, OrderState
from notification_service.console.units.story import UnitStory
from resequencer.clock import Instant
from resequencer.errors import ResequencerError
from resequencer.order import Order, OrderKind, Stage, find_missing, is_same_person
from resequencer.record import Partition
from resequencer.storage_port import Waits


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
        raise NotGiven("say why: the reason is stored with the order")
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


class KindText(NamedTuple):
    """What a kind of order is called on a button, and what it does."""

    button: str
    does: str


TEXTS = {
    OrderKind.RELEASE: KindText(
        "Release", "What waits leaves now, as at the deadline. Its notifications are marked incomplete and released-by."
    ),
    OrderKind.SKIP: KindText("Skip", "The lowest missing number is given up. What waited for it goes on, with the same marks."),
    OrderKind.HOLD: KindText("Hold", "Nothing of the unit is handled until the time is over. Its deadline rests."),
    OrderKind.RESUME: KindText("Resume", "The hold ends, and the unit goes on."),
    OrderKind.EXTEND: KindText("Extend", "What waits gets another deadline, at most 24 hours from now."),
    OrderKind.RETRY: KindText("Retry", "The attempt that is due later is made now."),
    OrderKind.DEAD_LETTER: KindText(
        "Dead-letter", "The envelope becomes a dead letter. If it is not under retry, its number stays missing."
    ),
    OrderKind.PAUSE: KindText("Pause", "The input of the partition is not read, and its deadlines rest. Retries go on."),
    OrderKind.RESUME_PARTITION: KindText("Resume", "The input of the partition is read again."),
}

_FITTING = {
    "deadline": (OrderKind.RELEASE, OrderKind.SKIP, OrderKind.HOLD, OrderKind.EXTEND),
    "retry": (OrderKind.RETRY, OrderKind.HOLD),
    "dependency": (OrderKind.RETRY, OrderKind.HOLD),
    "held": (OrderKind.RESUME,),
}


def fitting_kinds(story: UnitStory) -> tuple[OrderKind, ...]:
    """Return the orders that fit what the unit is in. Those for one envelope are beside the envelope."""
    if story.partition is None:
        return ()
    return (OrderKind.HOLD,) if story.wait is None else _FITTING.get(story.wait.kind, ())
