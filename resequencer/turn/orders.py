"""An operator's orders in the turn of a unit: each is executed or refused, and has one outcome.

The precondition of a release and a skip is what the person saw: what the unit waits for, and since when. So an order that was
given twice, or that comes after the unit has changed, has no second effect. While its partition has unread records, among which
the missing envelope may be, such an order waits in the unit: it is stored with it, until the records are read, its precondition
fails, or its time is over.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from resequencer.clock import instant_text
from resequencer.errors import DeadLetterOrdered, PermanentError
from resequencer.order import LONGEST_HOLD_MS, Order, OrderKind, OrderOutcome, OrderResult
from resequencer.printable import counted
from resequencer.storage_port import WaitKind, Waits
from resequencer.turn.release import release, try_again, unstash_all
from resequencer.turn.turn import Turn
from resequencer.turn.waits import begin_hold, deadline_at, end_hold, find_waits
from resequencer.unit import Ordered, Wake


class Ended(NamedTuple):
    """How an order ended, with words for the person who gave it."""

    result: OrderResult
    text: str


def carry_out(turn: Turn, ordered: Ordered) -> None:
    """Execute an order, or refuse it, and report the outcome; or keep it in the unit until unread records are read.

    The outcome of a hold is reported when the hold ends.
    """
    ended = _find_refusal(turn, ordered)
    if ended is None and _must_wait(ordered):
        turn.unit.amend(waiting_order=ordered)
        turn.is_changed = True
        return
    ended = ended or execute(turn, ordered)
    if ended is not None:
        report(turn, ordered, ended)


def execute_waiting_order(turn: Turn) -> None:
    """Execute the order that waits in the unit, because the records are read for which it waited.

    If its precondition fails, it is refused. No effect while nothing can be released: under a retry, a call or a remainder.
    """
    waiting, waits = turn.unit.waiting_order, find_waits(turn)
    if waiting is None or waits is None or waits.kind is not WaitKind.ORDERED:
        return
    changed = _find_change(waits, waiting.order)
    turn.unit.amend(waiting_order=None)
    end_waiting_order(turn, waiting, changed or execute(turn, waiting))


def check_waiting_order(turn: Turn, waiting: Ordered) -> None:
    """End the order that waits in the unit if the unit has changed, or if its time is over."""
    waits = find_waits(turn)
    if waits is None:
        text = "the missing envelopes came, or were given up, while the order waited: nothing waits in this unit any more"
        end_waiting_order(turn, waiting, Ended(OrderResult.REFUSED_CHANGED, text))
    elif waits.kind is WaitKind.ORDERED and (changed := _find_change(waits, waiting.order)) is not None:
        end_waiting_order(turn, waiting, changed)
    # An order that may wait too long began to wait by a clock that was ahead.
    elif waits.kind is not WaitKind.REMAINDER and not 0 < (waiting.until or 0) - turn.now <= LONGEST_HOLD_MS:
        end_waiting_order(turn, waiting, _too_late(turn, waiting, waits))


def end_waiting_order(turn: Turn, waiting: Ordered, ended: Ended | None) -> None:
    """Take the order that waits out of the unit, and report its outcome."""
    turn.unit.amend(waiting_order=None)
    turn.is_changed = True
    if ended is not None:
        report(turn, waiting, ended)


def report(turn: Turn, ordered: Ordered, ended: Ended) -> None:
    """Add the outcome of an order to the turn's output."""
    turn.report(
        OrderOutcome(order=ordered.order, order_offset=ordered.order_offset, result=ended.result, text=ended.text, at=turn.now)
    )


def end_hold_in_time(turn: Turn) -> None:
    """End the hold whose time is over, and handle what is acceptable now. No effect before that time."""
    hold = turn.unit.hold
    # A hold that ends too far in the future was begun by a clock that was ahead.
    if hold is not None and not 0 < hold.until - turn.now <= LONGEST_HOLD_MS:
        end_hold(turn, OrderResult.HELD_TO_ITS_END)
        unstash_all(turn)


def execute(turn: Turn, ordered: Ordered) -> Ended | None:
    """Execute an order, whatever its precondition says. An order that is impossible changes nothing.

    A release and a skip need a stash. The result is None for a hold that has begun.
    """
    return _EXECUTIONS[ordered.order.kind](turn, ordered)


def _find_refusal(turn: Turn, ordered: Ordered) -> Ended | None:
    is_release = ordered.order.kind in (OrderKind.RELEASE, OrderKind.SKIP)
    if not turn.is_changed and turn.unit.is_like_new(turn.strategy.initial(), turn.context.data_handler.empty):
        return _impossible("this unit is not known here: nothing of it waits or is remembered")
    waiting = turn.unit.waiting_order
    if waiting is not None and not (is_release and ordered.order.despite_backlog):
        text = f"the {waiting.order.kind.value} ordered by {waiting.order.by} waits until unread records are read"
        return Ended(OrderResult.REFUSED_WAITING, text)
    if turn.unit.remainder is not None:
        return Ended(OrderResult.REFUSED_CHANGED, "the unit is being released; look at it again")
    return _refuse_changed(turn, ordered) if is_release else None


def _release(turn: Turn, ordered: Ordered) -> Ended:
    del ordered
    count = len(turn.unit.stash)
    release(turn, Wake.ORDER)
    waiting = len(turn.unit.stash) + (turn.unit.retry is not None)
    if not waiting:
        return Ended(OrderResult.DONE, f"released {counted(count, 'envelope')}")
    return Ended(OrderResult.DONE, f"released; {waiting} of {counted(count, 'envelope')} still wait to be handled")


def _skip(turn: Turn, ordered: Ordered) -> Ended:
    del ordered
    lowest = turn.context.find_lowest(turn.unit)
    assert lowest is not None, "something waits"
    turn.current = lowest.envelope
    missing, skip = turn.missing(lowest), getattr(turn.strategy, "skip", None)
    try:
        state = None if skip is None else skip(turn.unit.state, lowest.envelope)
    except PermanentError as error:
        return _impossible(str(error))
    if state is None:
        return _impossible(f"strategy {turn.strategy.name} waits for no number that could be skipped")
    before = len(turn.unit.stash)
    turn.is_changed, turn.unit.state = True, state
    turn.incomplete, turn.is_ordered = missing, True
    turn.released_to = max([each.offset for each in turn.unit.stash])
    turn.unstash(lowest.lane)
    if turn.unit.is_free:
        unstash_all(turn)
    turn.unmark()
    return Ended(OrderResult.DONE, f"skipped {missing}; {counted(before - len(turn.unit.stash), 'envelope')} went on")


def _hold(turn: Turn, ordered: Ordered) -> Ended | None:
    if turn.unit.hold is not None:
        return _impossible(f"the unit is held until {instant_text(turn.unit.hold.until)} already")
    assert ordered.order.for_ms is not None, "the order was checked when it was decoded"
    begin_hold(turn, ordered, ordered.order.for_ms)
    return None


def _resume(turn: Turn, ordered: Ordered) -> Ended:
    del ordered
    if turn.unit.hold is None:
        return _impossible("the unit is not held")
    end_hold(turn, OrderResult.HELD_UNTIL_RESUMED)
    unstash_all(turn)
    return Ended(OrderResult.DONE, "the unit goes on")


def _extend(turn: Turn, ordered: Ordered) -> Ended:
    until, oldest = ordered.order.until, turn.unit.oldest
    assert until is not None, "the order was checked when it was decoded"
    waits = find_waits(turn)
    if oldest is None or waits is None or waits.kind is not WaitKind.DEADLINE:
        return _impossible(_what_instead(turn))
    if not turn.now < until <= turn.now + LONGEST_HOLD_MS:
        return _impossible(f"{instant_text(until)} is not within 24 h from now ({instant_text(turn.now)})")
    before = deadline_at(turn, oldest)
    turn.unit.amend(deadline_at=until)
    turn.is_changed = True
    return Ended(OrderResult.DONE, f"the deadline is {instant_text(until)}; it was {instant_text(before)}")


def _retry(turn: Turn, ordered: Ordered) -> Ended:
    del ordered
    if turn.unit.retry is None or turn.unit.is_called or turn.unit.hold is not None:
        return _impossible(_what_instead(turn))
    try_again(turn, is_early=True)
    waits = find_waits(turn)
    if waits is not None and waits.kind is WaitKind.CALL:
        return Ended(OrderResult.DONE, "tried: its handler is called")
    if waits is None or waits.kind not in (WaitKind.RETRY, WaitKind.DEPENDENCY):
        return Ended(OrderResult.DONE, "tried: nothing is under retry any more")
    return Ended(OrderResult.DONE, f"tried: the next attempt is at {instant_text(waits.wakes_at)}")


def _dead_letter(turn: Turn, ordered: Ordered) -> Ended:
    order = ordered.order
    error = DeadLetterOrdered(f"ordered by {order.by}: {order.because}")
    unit, retry = turn.unit, turn.unit.retry
    if retry is not None and retry.entry.offset == order.position:
        turn.dead_letter_retry(retry, error)
        unstash_all(turn)
        what = "whose handler was called" if retry.is_called else "under retry"
        return Ended(OrderResult.DONE, f"the envelope {what} is a dead letter")
    entry = next((each for each in unit.stash if each.offset == order.position), None)
    if entry is None:
        return _impossible(f"no envelope at offset {order.position} waits in this unit")
    turn.gather_with(entry.envelope)  # Its parts were counted when it came: its data counts, as that of any dead letter.
    turn.is_changed = True
    unit.remove(entry)
    turn.dead_letter_entry(entry, error.reason, str(error))
    return Ended(OrderResult.DONE, "the envelope is a dead letter; its number is still missing")


_EXECUTIONS: Mapping[OrderKind, Callable[[Turn, Ordered], Ended | None]] = {
    OrderKind.RELEASE: _release,
    OrderKind.SKIP: _skip,
    OrderKind.HOLD: _hold,
    OrderKind.RESUME: _resume,
    OrderKind.EXTEND: _extend,
    OrderKind.RETRY: _retry,
    OrderKind.DEAD_LETTER: _dead_letter,
}


def _refuse_changed(turn: Turn, ordered: Ordered) -> Ended | None:
    """Return why a release or a skip is refused, None if it is not."""
    waits = find_waits(turn)
    if waits is None:
        return Ended(OrderResult.REFUSED_CHANGED, "nothing waits in this unit any more")
    changed = _find_change(waits, ordered.order)
    if changed is not None:
        return changed
    if waits.kind not in (WaitKind.DEADLINE, WaitKind.ORDERED):
        return _impossible(_what_instead(turn))
    if _must_wait(ordered) and ordered.until is None:
        text = "the partition is paused, and has unread records, among which the missing envelope may be"
        return Ended(OrderResult.REFUSED_BACKLOG, f"{text}; resume it, or order it despite the backlog")
    return None


def _find_change(waits: Waits, order: Order) -> Ended | None:
    """Return that the unit does not wait any more for what the person saw, None if it does."""
    if order.waits_for in (waits.waits_for, waits.shown_waits_for) and waits.since == order.since:
        return None
    return Ended(OrderResult.REFUSED_CHANGED, f"it waits for {waits.shown_waits_for} since {instant_text(waits.since)} now")


def _must_wait(ordered: Ordered) -> bool:
    """Whether the order must not be executed before unread records are read."""
    order = ordered.order
    is_release = order.kind in (OrderKind.RELEASE, OrderKind.SKIP)
    return is_release and ordered.unread_to is not None and not order.despite_backlog


def _too_late(turn: Turn, waiting: Ordered, waits: Waits) -> Ended:
    """Return the outcome of an order whose time is over."""
    if waits.kind is not WaitKind.ORDERED:
        return _impossible(_what_instead(turn))
    text = f"the records up to offset {waiting.unread_to}, among which the missing envelope may be, were not read in time"
    return Ended(OrderResult.REFUSED_BACKLOG, f"{text}; order it again, or despite the backlog")


def _what_instead(turn: Turn) -> str:
    if turn.unit.hold is not None:
        return f"the unit is held until {instant_text(turn.unit.hold.until)}; resume it first"
    if turn.unit.retry is not None and turn.unit.is_called:
        called_s = max(0, turn.now - turn.unit.retry.due_at) / 1_000
        return f"its handler has been called for {called_s:.1f} s; wait for its answer, or order dead-letter with its offset"
    if turn.unit.retry is not None:
        return "the unit's head is under retry; order retry, or dead-letter with its offset"
    return "nothing waits for a deadline or an attempt"


def _impossible(text: str) -> Ended:
    return Ended(OrderResult.REFUSED_IMPOSSIBLE, text)
