"""Orders, as pages and operations of the API: what was ordered and what came of it; giving one, and deciding about a proposal."""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from http import HTTPStatus
from typing import Annotated, NamedTuple
from urllib.parse import urlencode

import msgspec
from msgspec import Meta
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from guardian.ports import OrderBook
from notification_service.console.access.identity import Role
from notification_service.console.access.layer import route
from notification_service.console.context import (
    MAX_REASON,
    Because,
    Console,
    Name,
    Operation,
    change_of,
    form_route,
    get_instant,
    identity_of,
    read_choice,
    read_instant,
    read_number,
    read_partition,
    reason_of,
)
from notification_service.console.dead_letters import story_for_person
from notification_service.console.find_unit import known_partitions, note_waits
from notification_service.console.orders import (
    ListedOrder,
    NotGiven,
    OrderState,
    ToldOrder,
    Wish,
    approve,
    give,
    list_orders,
    make_order,
    order_answer,
    reject,
)
from notification_service.console.unit_pages import story_for
from notification_service.events.identifiers import shown
from resequencer.clock import Instant
from resequencer.errors import ResequencerError
from resequencer.keys.value_types import Duration, Mismatch
from resequencer.order import LONGEST_HOLD_MS, Order, OrderKind, Stage, is_same_person
from resequencer.printable import printable
from resequencer.record import Partition
from resequencer.storage_port import WaitKind, Waits

WEEK_MS = 7 * 86_400_000


@contextmanager
def opened(console: Console) -> Iterator[OrderBook]:
    """Open the book. An order that is refused before it is given is a conflict; a book that does not answer is unavailable."""
    if console.sources.open_orders is None:
        raise HTTPException(HTTPStatus.CONFLICT, "orders are not enabled: set orders.enabled, and restart the service")
    try:
        with closing(console.sources.open_orders()) as book:
            yield book
    except NotGiven as error:
        raise HTTPException(HTTPStatus.CONFLICT, str(error)) from error
    except ResequencerError as error:
        raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, f"the orders cannot be used: {printable(str(error))}") from error


def recent_orders(console: Console, book: OrderBook, since: Instant | None = None) -> Sequence[ListedOrder]:
    """Return the orders since an instant, by default of the last week; the newest first."""
    now = console.sources.clock.now()
    begin = now - WEEK_MS if since is None else since
    known, _ = known_partitions(console.sources, console.sources.find_report())
    return list_orders(book.orders(known, begin), book.outcomes(known, begin), now)


def give_order(
    console: Console, request: Request, wish: Wish, partition: Partition, unit: str | None, seen: tuple[str, Instant] | None
) -> Order:
    """Give the order, or propose it. `seen` is what the unit waits for, and since when, as the person saw it."""
    known, _ = known_partitions(console.sources, console.sources.find_report())
    if partition not in known:
        raise HTTPException(HTTPStatus.CONFLICT, f"there is no partition {shown(str(partition))} in the input")
    with opened(console) as book:
        return give_noted(console, request, book, wish, partition, unit, seen)


def give_noted(
    console: Console,
    request: Request,
    book: OrderBook,
    wish: Wish,
    partition: Partition,
    unit: str | None,
    seen: tuple[str, Instant] | None,
) -> Order:
    """As `give_order`, in a book that is open: write into the audit log what is ordered, then give it."""
    waits = None if seen is None else Waits(0, WaitKind.DEADLINE, seen[1], seen[0], "", 0, 0)
    order = make_order(wish, identity_of(request).name, console.sources.clock.now(), secrets.token_hex(16), unit, waits)
    details = {"order": order.id, "unit": unit, "partition": str(partition), "because": wish.because}
    stage = {"stage": Stage.PROPOSED.value} if wish.kind in console.settings.approval else {}
    console.audit_log.note(request, f"orders.{wish.kind.value}", **details, **stage)
    return give(book, partition, order, console.settings.approval)


def decide_proposal(console: Console, request: Request, order_id: str, *, is_approved: bool, because: str) -> Order:
    """Approve or reject a proposal of the last week."""
    by, now = identity_of(request).name, console.sources.clock.now()
    with opened(console) as book:
        found = next((each for each in recent_orders(console, book) if each.order.id == order_id), None)
        if found is None:
            raise HTTPException(HTTPStatus.NOT_FOUND, "there is no such order in the last week")
        action = "orders.approve" if is_approved else "orders.reject"
        proposed = found.order
        details = {"kind": proposed.kind.value, "unit": proposed.unit, "partition": str(found.partition)}
        console.audit_log.note(
            request,
            action,
            proposal=order_id,
            **details,
            proposed_by=proposed.by,
            because=proposed.because if is_approved else because or None,
        )
        return approve(book, found, by) if is_approved else reject(book, found, by, because or "no reason was given", now)


_HOLD = Duration("1s", "24h")
_SHOWN = 200


class KindText(NamedTuple):
    """What a kind of order is called on a button, and what it does."""

    button: str
    does: str


TEXTS = {
    OrderKind.RELEASE: KindText(
        "Release",
        "The waiting envelopes are sent now, as at the deadline. Their notifications are marked incomplete and released-by.",
    ),
    OrderKind.SKIP: KindText(
        "Skip", "The unit no longer waits for the lowest missing number. What follows is marked incomplete and released-by."
    ),
    OrderKind.HOLD: KindText("Hold", "Nothing of the unit is handled until the time is over. Its deadline does not run."),
    OrderKind.RESUME: KindText("Resume", "The hold ends, and the unit continues."),
    OrderKind.EXTEND: KindText("Extend", "The waiting envelopes get another deadline, at most 24 hours from now."),
    OrderKind.RETRY: KindText("Retry", "The attempt that is due later is made now."),
    OrderKind.DEAD_LETTER: KindText(
        "Dead-letter", "The envelope becomes a dead letter. If it is not under retry, its number stays missing."
    ),
    OrderKind.PAUSE: KindText("Pause", "The input of the partition is not read, and its deadlines do not run. Retries continue."),
    OrderKind.RESUME_PARTITION: KindText("Resume", "The input of the partition is read again."),
}


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


def order_routes(console: Console) -> list[Route]:
    pages = _OrderPages(console)
    return [
        route("/orders", pages.overview, name="orders"),
        route("/orders/new", pages.new, needs=Role.OPERATOR, name="new-order"),
        route("/orders/give", pages.give, needs=Role.OPERATOR, name="give-order", tokens=console.tokens),
        form_route(console, "/orders/approve", Approval, partial(_approve, console), pages.decided),
        form_route(console, "/orders/reject", Rejection, partial(_reject, console), pages.decided),
    ]


class _OrderPages:
    def __init__(self, console: Console) -> None:
        self._console = console

    def overview(self, request: Request) -> Response:
        name = identity_of(request).name
        unit, state, kind = (request.query_params.get(each, "") for each in ("unit", "state", "kind"))
        with opened(self._console) as book:
            listed = recent_orders(self._console, book)
        listed = _with_waits(self._console, listed)
        found = [
            each
            for each in listed
            if unit in ("", each.order.unit) and state in ("", each.state.value) and kind in ("", each.order.kind.value)
        ]
        proposals = [each for each in listed if each.state is OrderState.PROPOSED]
        return self._console.page(
            request,
            "orders.html",
            orders=[order_answer(each) for each in found[:_SHOWN]],
            matching=len(found),
            proposals=[(each, order_answer(each), is_same_person(each.order.by, name)) for each in proposals[-_SHOWN:]],
            proposal_count=len(proposals),
            states=[each.value for each in OrderState],
            kinds=[each.value for each in OrderKind],
            unit=unit,
            state=state,
            kind=kind,
            may_order=identity_of(request).may(Role.OPERATOR),
        )

    def new(self, request: Request) -> Response:
        """Show what the order would do to the unit as it is now, and ask for the reason."""
        asked = request.query_params
        kind, partition = _kind(asked.get("kind", "")), read_partition(asked.get("partition", ""))
        with opened(self._console):
            pass
        unit = request.query_params.get("unit")
        story = None
        if not kind.is_of_partition:
            if not unit:
                raise HTTPException(HTTPStatus.BAD_REQUEST, "this order is for a unit; begin at the page of the unit")
            story = story_for_person(identity_of(request), story_for(self._console, unit, partition, is_all=False))
        return self._console.page(
            request,
            "new_order.html",
            kind=kind,
            text=TEXTS[kind],
            partition=str(partition),
            unit=unit,
            story=story,
            position=request.query_params.get("position", ""),
            needs_approval=kind in self._console.settings.approval,
        )

    def give(self, request: Request) -> Response:
        form = request.state.form
        kind, partition, unit = _kind(form.get("kind", "")), read_partition(form.get("partition", "")), form.get("unit") or None
        wish = Wish(
            kind,
            reason_of(form.get("because", "")),
            for_ms=_for_ms(form.get("for", "")) if kind is OrderKind.HOLD else None,
            until=get_instant("until", form.get("until", "")) if kind is OrderKind.EXTEND else None,
            position=read_number("position", form.get("position", ""), "an offset") if kind is OrderKind.DEAD_LETTER else None,
            despite_backlog=form.get("despite-backlog") == "yes",
        )
        seen = (form["waits-for"], get_instant("since", form.get("since", ""))) if form.get("waits-for") else None
        order = give_order(self._console, request, wish, partition, None if kind.is_of_partition else unit, seen)
        page = "/orders" if order.unit is None else f"/unit?{urlencode({'id': order.unit, 'partition': partition})}"
        return RedirectResponse(f"{page}#order-{order.id}", HTTPStatus.SEE_OTHER)

    @staticmethod
    def decided(request: Request, taken: Approval | Rejection, given: Given) -> Response:
        del request, taken
        return RedirectResponse(f"/orders#order-{given.id}", HTTPStatus.SEE_OTHER)


def _kind(text: str) -> OrderKind:
    return OrderKind(read_choice("kind", text, tuple(OrderKind)))


def _for_ms(text: str) -> int:
    try:
        return int(_HOLD.read(text.strip()) or 0)
    except Mismatch as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"how long is {_HOLD.expects}") from error


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


def order_operations(console: Console) -> list[Operation]:
    def orders(request: Request, query: OrdersQuery) -> OrdersAnswer:
        del request
        with opened(console) as book:
            listed = _with_waits(console, recent_orders(console, book, read_instant("since", query.since)))
        found = [
            each
            for each in listed
            if query.unit in (None, each.order.unit)
            and query.kind in (None, each.order.kind)
            and query.state in (None, each.state)
        ]
        return OrdersAnswer(tuple(map(order_answer, found[: query.limit])), len(found))

    def order(request: Request, new: NewOrder) -> Given:
        partition = read_partition(new.partition)
        wish = Wish(new.order, new.because, new.for_ms, read_instant("until", new.until), new.position, new.despite_backlog)
        since = read_instant("since", new.since)
        seen = None if new.waits_for is None or since is None else (new.waits_for, since)
        return _given(give_order(console, request, wish, partition, None if new.order.is_of_partition else new.unit, seen))

    approve, reject = partial(_approve, console), partial(_reject, console)
    return [
        Operation("/orders", "orders", orders, OrdersAnswer, "The orders, and what came of each", OrdersQuery),
        change_of("/order", "order", order, Given, "Give an order, or propose it", NewOrder),
        change_of("/order/approve", "approve-order", approve, Given, "Approve what another person proposed", Approval),
        change_of("/order/reject", "reject-order", reject, Given, "Reject or take back a proposal", Rejection),
    ]


def _with_waits(console: Console, listed: Sequence[ListedOrder]) -> Sequence[ListedOrder]:
    return note_waits(console.sources, console.viewing(), listed)


def _approve(console: Console, request: Request, approval: Approval) -> Given:
    return _given(decide_proposal(console, request, approval.id, is_approved=True, because=""))


def _reject(console: Console, request: Request, rejection: Rejection) -> Given:
    because = rejection.because.strip()[:MAX_REASON]
    return _given(decide_proposal(console, request, rejection.id, is_approved=False, because=because))


def _given(order: Order) -> Given:
    return Given(order.id, order.stage is Stage.PROPOSED)
