"""The orders of one unit, and what came of each."""

from collections.abc import Callable, Collection
from contextlib import closing

from guardian.ports import OrderBook
from notification_service.console.orders.listing import list_orders
from notification_service.console.orders.order_answer import tell_order
from notification_service.console.units.story import UnitOrders
from resequencer.clock import Instant, instant_text
from resequencer.errors import ResequencerError
from resequencer.printable import printable
from resequencer.record import Partition

_MOST = 100


def find_orders(
    open_orders: Callable[[], OrderBook], partitions: Collection[Partition], unit: str, since: Instant, now: Instant
) -> UnitOrders:
    """Return the unit's orders that were given at `since` (0: all) or later: the newest 100 at most, the oldest of them first.

    What the book raises is told in the result.
    """
    span = "all orders" if not since else f"the orders since {instant_text(since)}"
    try:
        with closing(open_orders()) as book:
            given = [each for each in book.orders(partitions, since) if each.order.unit == unit]
            outcomes = book.outcomes(partitions, since) if given else ()
    except ResequencerError as error:
        return UnitOrders((), is_complete=False, searched=f"no orders: {printable(str(error))}")
    listed = list_orders(given, outcomes, now)
    searched = span if len(listed) <= _MOST else f"the newest {_MOST} of {len(listed)} in {span}"
    return UnitOrders(tuple(tell_order(each) for each in reversed(listed[:_MOST])), not since and len(listed) <= _MOST, searched)
