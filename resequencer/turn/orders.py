"""An operator's orders in the turn of a unit: each is executed or refused, and has one outcome.

The precondition of a release and a skip is what the person saw: what the unit waits for, and since when. So an order that was
given twice, or that comes after the unit has changed, has no second effect.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from domain.clock import instant_text
from domain.errors import DeadLetterOrdered, PermanentError
from domain.order import LONGEST_HOLD_MS, OrderKind, OrderOutcome, OrderResult
from domain.printable import counted
from resequencer.turn.decision import find_waits
from resequencer.turn.gathering import gather_with
from resequencer.turn.handling import set_aside
from resequencer.turn.hold import begin_hold, deadline_at, end_hold
from resequencer.turn.next_attempt import try_again, unstash_all
from resequencer.turn.release import release
from resequencer.turn.unstash import unstash
from resequencer.turn.working_copy import WorkingCopy
from resequencer.unit import Ordered, Unit, Wake
from storage.port import WaitKind


class Ended(NamedTuple):
    """How an order ended, with words for the person who gave it."""

    result: OrderResult
    text: str


def obey(copy: WorkingCopy, ordered: Ordered) -> None:
    """Execute an order, or refuse it, and report the outcome. The outcome of a hold is reported when the hold ends."""
    ended = _find_refusal(copy, ordered) or execute(copy, ordered)
    if ended is not None:
        report(copy, ordered, ended)


def report(copy: WorkingCopy, ordered: Ordered, ended: Ended) -> None:
    """Add the outcome of an order to the turn's output."""
    copy.effects.report(
        OrderOutcome(order=ordered.order, order_offset=ordered.order_offset, result=ended.result, text=ended.text, at=copy.now)
    )


def end_hold_in_time(copy: WorkingCopy) -> None:
    """End the hold whose time is over, and handle what is acceptable now. No effect before that time."""
    hold = copy.hold
    # A hold that ends too far in the future was begun by a clock that was ahead.
    if hold is not None and not 0 < hold.until - copy.now <= LONGEST_HOLD_MS:
        end_hold(copy, OrderResult.HELD_TO_ITS_END)
        unstash_all(copy)


def execute(copy: WorkingCopy, ordered: Ordered) -> Ended | None:
    """Execute an order, whatever its precondition says. An order that is impossible changes nothing.

    A release and a skip need a stash. The result is None for a hold that has begun.
    """
    return _EXECUTIONS[ordered.order.kind](copy, ordered)


def _find_refusal(copy: WorkingCopy, ordered: Ordered) -> Ended | None:
    if copy.before == Unit(copy.before.unit, copy.strategy.initial()) and not copy.is_changed:
        return _impossible("this unit is not known here: nothing of it waits or is remembered")
    if copy.remainder is not None:
        return Ended(OrderResult.REFUSED_CHANGED, "the unit is being released; look at it again")
    return _refuse_changed(copy, ordered) if ordered.order.kind in (OrderKind.RELEASE, OrderKind.SKIP) else None


def _release(copy: WorkingCopy, ordered: Ordered) -> Ended:
    del ordered
    count = len(copy.stash)
    release(copy, Wake.ORDER)
    left = len(copy.stash) + (copy.retry is not None)
    if not left:
        return Ended(OrderResult.DONE, f"released {counted(count, 'envelope')}")
    return Ended(OrderResult.DONE, f"released; {left} of {counted(count, 'envelope')} still wait to be handled")


def _skip(copy: WorkingCopy, ordered: Ordered) -> Ended:
    del ordered
    lowest = copy.stash.lowest
    assert lowest is not None, "something waits"
    copy.current = lowest.envelope
    missing, skip = copy.missing(lowest), getattr(copy.strategy, "skip", None)
    try:
        state = None if skip is None else skip(copy.state, lowest.envelope)
    except PermanentError as error:
        return _impossible(str(error))
    if state is None:
        return _impossible(f"strategy {copy.strategy.name} waits for no number that could be skipped")
    before = len(copy.stash)
    copy.is_changed, copy.state = True, state
    copy.incomplete, copy.is_ordered = missing, True
    copy.released_to = max(each.envelope.offset for each in copy.stash)
    unstash(copy, lowest.rank.lane)
    if copy.is_free:
        unstash_all(copy)
    copy.incomplete, copy.released_to, copy.is_ordered = None, -1, False
    return Ended(OrderResult.DONE, f"skipped {missing}; {counted(before - len(copy.stash), 'envelope')} went on")


def _hold(copy: WorkingCopy, ordered: Ordered) -> Ended | None:
    if copy.hold is not None:
        return _impossible(f"the unit is held until {instant_text(copy.hold.until)} already")
    assert ordered.order.for_ms is not None, "the order was checked when it was decoded"
    begin_hold(copy, ordered, ordered.order.for_ms)
    return None


def _resume(copy: WorkingCopy, ordered: Ordered) -> Ended:
    del ordered
    if copy.hold is None:
        return _impossible("the unit is not held")
    end_hold(copy, OrderResult.HELD_UNTIL_RESUMED)
    unstash_all(copy)
    return Ended(OrderResult.DONE, "the unit goes on")


def _extend(copy: WorkingCopy, ordered: Ordered) -> Ended:
    until, oldest = ordered.order.until, copy.stash.oldest
    assert until is not None, "the order was checked when it was decoded"
    waits = find_waits(copy)
    if oldest is None or waits is None or waits.kind is not WaitKind.DEADLINE:
        return _impossible(_what_instead(copy))
    if not copy.now < until <= copy.now + LONGEST_HOLD_MS:
        return _impossible(f"{instant_text(until)} is not within 24 h from now ({instant_text(copy.now)})")
    before = deadline_at(copy, oldest)
    copy.deadline_at, copy.is_changed = until, True
    return Ended(OrderResult.DONE, f"the deadline is {instant_text(until)}; it was {instant_text(before)}")


def _retry(copy: WorkingCopy, ordered: Ordered) -> Ended:
    del ordered
    if copy.retry is None or copy.hold is not None:
        return _impossible(_what_instead(copy))
    try_again(copy, is_early=True)
    waits = find_waits(copy)
    if waits is None or waits.kind not in (WaitKind.RETRY, WaitKind.DEPENDENCY):
        return Ended(OrderResult.DONE, "tried: nothing is under retry any more")
    return Ended(OrderResult.DONE, f"tried: the next attempt is at {instant_text(waits.wakes_at)}")


def _dead_letter(copy: WorkingCopy, ordered: Ordered) -> Ended:
    order = ordered.order
    error = DeadLetterOrdered(f"ordered by {order.by}: {order.because}")
    if copy.retry is not None and copy.retry.entry.envelope.offset == order.position:
        set_aside(copy, copy.retry, error)
        unstash_all(copy)
        return Ended(OrderResult.DONE, "the envelope under retry is a dead letter")
    entry = next((each for each in copy.stash if each.envelope.offset == order.position), None)
    if entry is None:
        return _impossible(f"no envelope at offset {order.position} waits in this unit")
    gather_with(copy, entry.envelope)  # Its parts were counted when it came: its data counts, as that of any dead letter.
    copy.is_changed, copy.stash = True, copy.stash.without(entry)
    copy.effects.dead_letter_entry(entry, error.reason, str(error))
    return Ended(OrderResult.DONE, "the envelope is a dead letter; its number is still missing")


_EXECUTIONS: Mapping[OrderKind, Callable[[WorkingCopy, Ordered], Ended | None]] = {
    OrderKind.RELEASE: _release,
    OrderKind.SKIP: _skip,
    OrderKind.HOLD: _hold,
    OrderKind.RESUME: _resume,
    OrderKind.EXTEND: _extend,
    OrderKind.RETRY: _retry,
    OrderKind.DEAD_LETTER: _dead_letter,
}


def _refuse_changed(copy: WorkingCopy, ordered: Ordered) -> Ended | None:
    """Return why a release or a skip is refused, None if it is not."""
    order, waits = ordered.order, find_waits(copy)
    if waits is None:
        return Ended(OrderResult.REFUSED_CHANGED, "nothing waits in this unit any more")
    if order.waits_for not in (waits.waits_for, waits.shown_waits_for) or waits.since != order.since:
        return Ended(OrderResult.REFUSED_CHANGED, f"it waits for {waits.shown_waits_for} since {instant_text(waits.since)} now")
    if waits.kind is not WaitKind.DEADLINE:
        return _impossible(_what_instead(copy))
    if ordered.has_backlog and not order.despite_backlog:
        text = "the partition has unread records, among which the missing envelope may be; wait, or order it despite the backlog"
        return Ended(OrderResult.REFUSED_BACKLOG, text)
    return None


def _what_instead(copy: WorkingCopy) -> str:
    if copy.hold is not None:
        return f"the unit is held until {instant_text(copy.hold.until)}; resume it first"
    if copy.retry is not None:
        return "the unit's head is under retry; order retry, or dead-letter with its offset"
    return "nothing waits for a deadline or an attempt"


def _impossible(text: str) -> Ended:
    return Ended(OrderResult.REFUSED_IMPOSSIBLE, text)
