"""Opens the order book for pages and the API, and gives orders in the name of the person who asks."""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request

from guardian.ports import OrderBook
from notification_service.console.context import Console, identity_of
from notification_service.console.orders.giving import NotGiven, Wish, approve, give, make_order, reject
from notification_service.console.orders.listing import ListedOrder, list_orders
from notification_service.console.units.find import known_partitions
from notification_service.events.identifiers import shown
from resequencer.clock import Instant
from resequencer.errors import ResequencerError
from resequencer.order import Order, Stage
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
    by = identity_of(request).name
    known, _ = known_partitions(console.sources, console.sources.find_report())
    if partition not in known:
        raise HTTPException(HTTPStatus.CONFLICT, f"there is no partition {shown(str(partition))} in the input")
    waits = None if seen is None else Waits(0, WaitKind.DEADLINE, seen[1], seen[0], "", 0, 0)
    with opened(console) as book:
        order = make_order(wish, by, console.sources.clock.now(), secrets.token_hex(16), unit, waits)
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
