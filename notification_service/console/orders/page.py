"""Orders: what was ordered, by whom and what came of it; giving one, and approving that of another person."""

from http import HTTPStatus
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from notification_service.console.access.role import Role
from notification_service.console.access.roles import route
from notification_service.console.context import Console, identity_of
from notification_service.console.masking import story_for_person
from notification_service.console.orders.book import decide_proposal, give_order, opened, recent_orders
from notification_service.console.orders.giving import TEXTS, Wish
from notification_service.console.orders.listing import OrderState
from notification_service.console.orders.order_answer import tell_order
from notification_service.console.units.page import story_for
from resequencer.clock import Instant, instant_of
from resequencer.keys.value_types import Duration, Mismatch
from resequencer.order import OrderKind, is_same_person
from resequencer.record import Partition

_LONGEST_REASON = 1_000
_HOLD = Duration("1s", "24h")
_SHOWN = 200


def order_routes(console: Console) -> list[Route]:
    pages = _OrderPages(console)
    return [
        route("/orders", pages.overview, name="orders"),
        route("/orders/new", pages.new, needs=Role.OPERATOR, name="new-order"),
        route("/orders/give", pages.give, needs=Role.OPERATOR, name="give-order", tokens=console.tokens),
        route("/orders/approve", pages.approve, needs=Role.OPERATOR, name="approve-order", tokens=console.tokens),
        route("/orders/reject", pages.reject, needs=Role.OPERATOR, name="reject-order", tokens=console.tokens),
    ]


class _OrderPages:
    def __init__(self, console: Console) -> None:
        self._console = console

    def overview(self, request: Request) -> Response:
        name = identity_of(request).name
        unit, state, kind = (request.query_params.get(each, "") for each in ("unit", "state", "kind"))
        with opened(self._console) as book:
            listed = recent_orders(self._console, book)
        found = [
            each
            for each in listed
            if unit in ("", each.order.unit) and state in ("", each.state.value) and kind in ("", each.order.kind.value)
        ]
        proposals = [each for each in listed if each.state is OrderState.PROPOSED]
        return self._console.page(
            request,
            "orders.html",
            orders=[tell_order(each) for each in found[:_SHOWN]],
            matching=len(found),
            proposals=[(each, tell_order(each), is_same_person(each.order.by, name)) for each in proposals],
            states=[each.value for each in OrderState],
            kinds=[each.value for each in OrderKind],
            unit=unit,
            state=state,
            kind=kind,
            may_order=identity_of(request).may(Role.OPERATOR),
        )

    def new(self, request: Request) -> Response:
        """Show what the order would do to the unit as it is now, and ask for the reason."""
        kind, partition = _kind(request.query_params.get("kind", "")), _partition(request.query_params.get("partition", ""))
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
        kind, partition, unit = _kind(form.get("kind", "")), _partition(form.get("partition", "")), form.get("unit") or None
        wish = Wish(
            kind,
            _because(form.get("because", "")),
            for_ms=_for_ms(form.get("for", "")) if kind is OrderKind.HOLD else None,
            until=_instant("until", form.get("until", "")) if kind is OrderKind.EXTEND else None,
            position=_offset(form.get("position", "")) if kind is OrderKind.DEAD_LETTER else None,
            despite_backlog=form.get("despite-backlog") == "yes",
        )
        seen = (form["waits-for"], _instant("since", form.get("since", ""))) if form.get("waits-for") else None
        order = give_order(self._console, request, wish, partition, None if kind.is_of_partition else unit, seen)
        page = "/orders" if order.unit is None else f"/unit?{urlencode({'id': order.unit, 'partition': partition})}"
        return RedirectResponse(f"{page}#order-{order.id}", HTTPStatus.SEE_OTHER)

    def approve(self, request: Request) -> Response:
        order = decide_proposal(self._console, request, request.state.form.get("id", ""), is_approved=True, because="")
        return RedirectResponse(f"/orders#order-{order.id}", HTTPStatus.SEE_OTHER)

    def reject(self, request: Request) -> Response:
        form = request.state.form
        because = form.get("because", "").strip()[:_LONGEST_REASON]
        order = decide_proposal(self._console, request, form.get("id", ""), is_approved=False, because=because)
        return RedirectResponse(f"/orders#order-{order.id}", HTTPStatus.SEE_OTHER)


def _kind(text: str) -> OrderKind:
    try:
        return OrderKind(text)
    except ValueError as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"an order is one of {', '.join(OrderKind)}") from error


def _partition(text: str) -> Partition:
    found = Partition.find(text)
    if found is None:
        raise HTTPException(HTTPStatus.BAD_REQUEST, "this is no partition; one is written as topic-number")
    return found


def _because(text: str) -> str:
    because = text.strip()[:_LONGEST_REASON]
    if not because:
        raise HTTPException(HTTPStatus.BAD_REQUEST, "say why; the reason is kept with your name")
    return because


def _for_ms(text: str) -> int:
    try:
        return int(_HOLD.read(text.strip()) or 0)
    except Mismatch as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"how long is {_HOLD.expects}") from error


def _instant(name: str, text: str) -> Instant:
    try:
        return instant_of(text.strip())
    except ValueError as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"{name} is an instant in UTC, such as 2026-03-28T23:33") from error


def _offset(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise HTTPException(HTTPStatus.BAD_REQUEST, "the position is the offset of a record")
    return int(text)
