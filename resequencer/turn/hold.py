"""The hold of a unit by an operator's order, and the deadline that an order sets."""

from domain.clock import Instant
from domain.order import LONGEST_HOLD_MS, OrderOutcome, OrderResult
from domain.steady_clock import SKEW_MS
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


def mend_deadline(copy: WorkingCopy, oldest: Stashed) -> None:
    """Set a deadline anew that an order set by a clock that was ahead: what waits has its whole wait from now on.

    If the stash has a time in the future too, the guardian has corrected both.
    """
    longest_ms = max(LONGEST_HOLD_MS, copy.context.settings.longest_deadline_ms)
    is_ahead = copy.deadline_at is not None and copy.deadline_at > copy.now + longest_ms + SKEW_MS
    if is_ahead and oldest.stashed_at <= copy.now:
        copy.deadline_at, copy.is_changed = copy.now + _whole_wait_ms(copy, oldest), True


def begin_hold(copy: WorkingCopy, ordered: Ordered, for_ms: int) -> None:
    """Handle nothing of the unit for this time. Its deadline rests, and no outcome is published before the end."""
    oldest = copy.stash.oldest
    left_ms = None
    if oldest is not None and copy.retry is None:
        left_ms = _possible_ms(copy, oldest, max(0, deadline_at(copy, oldest) - copy.now))
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
        left_ms = _whole_wait_ms(copy, oldest) if hold.left_ms is None else _possible_ms(copy, oldest, hold.left_ms)
        copy.deadline_at = copy.now + left_ms
    copy.effects.report(
        OrderOutcome(order=hold.order, order_offset=hold.order_offset, result=result, text=_ENDINGS[result], at=copy.now)
    )


def _whole_wait_ms(copy: WorkingCopy, oldest: Stashed) -> int:
    return deadline_of(oldest, copy.context.settings) - oldest.stashed_at


def _possible_ms(copy: WorkingCopy, oldest: Stashed, left_ms: int) -> int:
    """Return what can be left until a deadline: a clock that was behind when the hold began tells more."""
    whole_ms = _whole_wait_ms(copy, oldest)
    return min(left_ms, whole_ms if copy.deadline_at is None else max(LONGEST_HOLD_MS, whole_ms))
