"""The hold of a unit by an operator's order: its deadline rests while nothing of it is handled."""

from domain.order import LONGEST_HOLD_MS, OrderOutcome, OrderResult
from resequencer.turn.turn import Turn
from resequencer.turn.waits import deadline_at, whole_wait_ms
from resequencer.unit import Entry, Hold, Ordered

_ENDINGS = {
    OrderResult.HELD_TO_ITS_END: "the hold is over: its time has passed",
    OrderResult.HELD_UNTIL_RESUMED: "the hold is over: another order resumed the unit",
    OrderResult.HELD_UNTIL_BOUND: "the hold is over: the stash reached its limit (stash-limit)",
}


def begin_hold(turn: Turn, ordered: Ordered, for_ms: int) -> None:
    """Handle nothing of the unit for this time. Its deadline rests, and no outcome is published before the end."""
    oldest, left_ms = turn.unit.oldest, None
    if oldest is not None and turn.unit.retry is None:
        left_ms = _possible_ms(turn, oldest, max(0, deadline_at(turn, oldest) - turn.now))
    turn.unit.amend(hold=Hold(ordered.order, ordered.order_offset, turn.now, turn.now + for_ms, left_ms))
    turn.is_changed = True


def end_hold(turn: Turn, result: OrderResult) -> None:
    """End the hold and report how. The deadline has as much time left as it had when the hold began.

    What became acceptable meanwhile is not handled here.
    """
    unit, hold, oldest = turn.unit, turn.unit.hold, turn.unit.oldest
    assert hold is not None, "only a held unit is asked to end its hold"
    turn.is_changed = True
    unit.amend(hold=None)
    if oldest is not None and unit.retry is None:
        whole_ms = whole_wait_ms(oldest, turn.context.settings)
        left_ms = whole_ms if hold.left_ms is None else _possible_ms(turn, oldest, hold.left_ms)
        unit.amend(deadline_at=turn.now + left_ms)
    turn.report(OrderOutcome(order=hold.order, order_offset=hold.order_offset, result=result, text=_ENDINGS[result], at=turn.now))


def _possible_ms(turn: Turn, oldest: Entry, left_ms: int) -> int:
    """Return what can be left until a deadline: a clock that was behind when the hold began tells more."""
    whole_ms = whole_wait_ms(oldest, turn.context.settings)
    return min(left_ms, whole_ms if turn.unit.deadline_at is None else max(LONGEST_HOLD_MS, whole_ms))
