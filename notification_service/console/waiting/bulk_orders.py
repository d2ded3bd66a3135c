"""Orders for all units that a filter of the waiting page lets through: first their count is shown, then each gets its order."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from notification_service.console.access.identity import Role
from notification_service.console.access.layer import route
from notification_service.console.context import (
    Console,
    get_instant,
    known_parameters,
    read_choice,
    read_number,
    reason_of,
)
from notification_service.console.find_unit import known_partitions
from notification_service.console.order_pages import TEXTS, give_noted, opened
from notification_service.console.orders import Wish
from notification_service.console.waiting.pages import FILTERS, Asked, asked_of
from notification_service.console.waiting.units import WaitingFilter, WaitingUnit
from notification_service.events.identifiers import shown
from resequencer.clock import Instant
from resequencer.errors import ResequencerError
from resequencer.keys.value_types import Mismatch
from resequencer.order import OrderKind
from resequencer.printable import counted, printable
from resequencer.record import Partition
from resequencer.storage_port import WaitKind

MAX_ORDERS = 1_000
"""How many units one decision is for, at most: each gets an order of its own, which is appended durably."""

_KINDS = (OrderKind.RELEASE, OrderKind.EXTEND)
_SAMPLE = 20


class Given(NamedTuple):
    """What came of it: how many orders were given, of how many; `problem` ended it before."""

    given: int
    units: int
    problem: str | None


def bulk_order_routes(console: Console) -> list[Route]:
    def confirm(request: Request) -> Response:
        """Ask before something is ordered for all that a filter shows: how many, and which."""
        given = known_parameters(request, *FILTERS, "order")
        kind, asked = _kind(given["order"]), asked_of(given)
        with opened(console):
            pass
        now = console.sources.clock.now()
        units = _matching(console, asked, now)
        return console.page(
            request,
            "confirm_orders.html",
            kind=kind,
            text=TEXTS[kind],
            asked=asked,
            units=units[:_SAMPLE],
            count=len(units),
            seen=now,
            max_orders=MAX_ORDERS,
            needs_approval=kind in console.settings.approval,
        )

    def order(request: Request) -> Response:
        form: Mapping[str, str] = request.state.form
        kind, asked = _kind(form.get("order", "")), asked_of({each: form.get(each, "") for each in FILTERS})
        wish = Wish(
            kind,
            reason_of(form.get("because", "")),
            until=get_instant("until", form.get("until", "")) if kind is OrderKind.EXTEND else None,
            despite_backlog=form.get("despite-backlog") == "yes",
        )
        count, seen = (read_number(each, form.get(each, ""), "that of the page before") for each in ("count", "seen"))
        units = _matching(console, asked, min(seen, console.sources.clock.now()))
        console.audit_log.note(request, f"orders.{kind.value}.all", units=len(units), because=wish.because, **asked.given)
        if not 0 < len(units) <= min(count, MAX_ORDERS):
            raise HTTPException(
                HTTPStatus.CONFLICT, f"{counted(len(units), 'unit')} match now, not {count:,} or fewer; look again"
            )
        done = _give_all(console, request, wish, units)
        status = HTTPStatus.OK if done.problem is None else HTTPStatus.SERVICE_UNAVAILABLE
        needs_approval = kind in console.settings.approval
        return console.page(
            request, "orders_given.html", status, done=done, kind=kind, needs_approval=needs_approval, asked=asked
        )

    return [
        route("/orders/all", confirm, needs=Role.OPERATOR, name="confirm-orders"),
        route("/orders/give-all", order, needs=Role.OPERATOR, name="give-orders", tokens=console.tokens),
    ]


def _matching(console: Console, asked: Asked, seen: Instant) -> Sequence[WaitingUnit]:
    """Return the units that wait at a deadline, one more than may be ordered for at most.

    Units that began to wait after the instant `seen` are not among them: the person did not confirm those.
    """
    try:
        wanted = asked.filtered(seen)
    except Mismatch as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST, asked.refused()) from error
    if wanted.kind not in ("", WaitKind.DEADLINE):
        problem = f"kind is {shown(wanted.kind)}; these orders are for units that wait at a deadline"
        raise HTTPException(HTTPStatus.CONFLICT, problem)
    before = seen if wanted.before is None else wanted.before
    chosen = WaitingFilter(wanted.waits_for, WaitKind.DEADLINE.value, wanted.partition, wanted.unit, before)
    return console.waiting.ask(chosen, limit=MAX_ORDERS + 1).page.units


def _give_all(console: Console, request: Request, wish: Wish, units: Sequence[WaitingUnit]) -> Given:
    """Give an order for each, or propose it. Each is noted before; the first that cannot be given ends it."""
    known, _ = known_partitions(console.sources, console.sources.find_report())
    given = 0
    with opened(console) as book:
        for each in units:
            partition = Partition.find(each.partition)
            if partition is None or partition not in known:
                return Given(given, len(units), f"there is no partition {printable(each.partition)} in the input")
            try:
                give_noted(console, request, book, wish, partition, each.unit, (each.waits_for, each.since))
            except ResequencerError as error:
                return Given(given, len(units), printable(str(error)))
            given += 1
    return Given(given, len(units), None)


def _kind(text: str) -> OrderKind:
    return OrderKind(read_choice("order", text, _KINDS))
