"""The hold of a unit by an operator's order, and the deadline that an order sets."""

from domain.clock import Instant
from domain.order import OrderOutcome, OrderResult
from resequencer.stash import Stashed
from resequencer.turn.deadline import deadline_of
from resequencer.turn.working_copy import WorkingCopy
from resequencer.unit import Hold, Ordered

_ENDINGS = {
    OrderResult.HELD_TO_ITS_END: "the hold is over: its time has passed",
    OrderResult.HELD_UNTIL_RESUMED: "the hold is over: another order resumed the unit",
    OrderResult.HELD_UNTIL_BOUND: "the hold is over: the stash reached its limit (stash-limit)",
}


def deadline_at(copy: WorkingCopy, oldest: Stashed) -> Instant:
    """Return the unit's deadline: the one that an order set, or that of its oldest stashed envelope."""
    return deadline_of(oldest, copy.context.settings) if copy.deadline_at is None else copy.deadline_at


def begin_hold(copy: WorkingCopy, ordered: Ordered, for_ms: int) -> None:
    """Handle nothing of the unit for this time. Its deadline rests, and no outcome is published before the end."""
    oldest = copy.stash.oldest
    left_ms = None if oldest is None or copy.retry is not None else max(0, deadline_at(copy, oldest) - copy.now)
    copy.hold = Hold(ordered.order, ordered.order_offset, copy.now, copy.now + for_ms, left_ms)
    copy.is_changed = True


def end_hold(copy: WorkingCopy, result: OrderResult) -> None:
    """End the hold and report how. The deadline has as much time left as it had when the hold began.

    What became acceptable meanwhile is not handled here.
    """
    hold, oldest = copy.hold, copy.stash.oldest
    assert hold is not None, "only a held unit is asked to end its hold"
    copy.hold, copy.is_changed = None, True
    if oldest is not None and copy.retry is None:
        left_ms = hold.left_ms
        if left_ms is None:
            left_ms = deadline_of(oldest, copy.context.settings) - oldest.stashed_at
        copy.deadline_at = copy.now + left_ms
    copy.effects.report(
        OrderOutcome(order=hold.order, order_offset=hold.order_offset, result=result, text=_ENDINGS[result], at=copy.now)
    )
