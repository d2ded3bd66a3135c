"""The release of a stash although something is missing, the next attempt of a head, and what becomes acceptable by either."""

from bisect import bisect_right

from msgspec.structs import replace

from resequencer.call import Answer
from resequencer.errors import PermanentError
from resequencer.order import OrderResult
from resequencer.turn.retry import is_due
from resequencer.turn.turn import Release, Turn
from resequencer.turn.waits import deadline_at, deadline_of, end_hold, mend_deadline
from resequencer.unit import Entry, Remainder, Retry, Unit, Wake

_UNAVAILABLE = 4
"""A unit that waits for a server or for its handler may hold this many times its normal bound."""


def release(turn: Turn, cause: Wake) -> None:
    """Force the lowest envelope, run the normal loop, and repeat until nothing waits or a handler asks for a retry.

    Nothing happens while the head is under retry, or before the deadline, which an order that waits suspends. If the stash has a
    time in the future, from a clock that was ahead, the deadline is not checked here: the guardian did so. For the bound of a
    worker (`Wake.BOUND`), a hold ends, and a head whose server is unavailable is dead-lettered first.
    """
    unit = turn.unit
    if cause is Wake.BOUND and unit.hold is not None:
        _end_hold_at_bound(turn)
    if cause is Wake.BOUND and unit.dependency is not None and not unit.is_called:
        _set_head_aside(turn, "the worker's stash is full (stash-limit.bytes-per-worker)")
    if not unit.stash or not unit.is_free:
        return
    if cause is Wake.DEADLINE and (oldest := unit.oldest) is not None:
        if unit.waiting_order is not None:
            return
        mend_deadline(turn, oldest)
        if oldest.stashed_at <= turn.now < deadline_at(turn, oldest):
            return
    turn.is_changed, turn.is_ordered = True, cause is Wake.ORDER
    if cause is Wake.DEADLINE and turn.context.releases_by_wait:
        _release_in_order(turn)
    elif cause is Wake.BOUND and turn.context.releases_by_wait and is_beyond_bound(turn):
        _release_to_bound(turn)
    else:
        turn.released_to = max([each.offset for each in unit.stash])
        release_stash(turn, cause)


def release_stash(turn: Turn, cause: Wake, *, is_rest: bool = False) -> None:
    """Release the stash as far as the turn's output budget allows. The next turn releases the rest, before later arrivals."""
    if cause is Wake.DEADLINE and turn.context.releases_by_wait:
        _release_in_order(turn)
        return
    unit, oldest, lowest = turn.unit, turn.unit.oldest, turn.context.find_lowest(turn.unit)
    if oldest is None or lowest is None:
        return
    before, missing, turn.cause = len(unit.stash), turn.missing(lowest), cause
    turn.gather_with(oldest.envelope)
    for entry in turn.context.release_order(unit, turn.released_to):
        _force(turn, entry)
    if unit.remainder is not None:
        unit.amend(remainder=replace(unit.remainder, cause=cause))
    turn.unmark()
    _note_release(turn, cause, missing, oldest, before - len(unit.stash), is_rest=is_rest)


def _note_release(turn: Turn, cause: Wake, missing: str, oldest: Entry, released: int, *, is_rest: bool = False) -> None:
    """Note how many envelopes a release released, if any."""
    if released:
        waited_ms, source_position = max(0, turn.now - oldest.stashed_at), str(oldest.envelope.record.origin)
        turn.releases.append(Release(turn.unit.name, cause, missing, released, waited_ms, source_position, is_rest))


def _release_to_bound(turn: Turn) -> None:
    """Where the end of a wait releases, a stash beyond its bound loses only the first ones: the others may still be overtaken.

    The cost is that of what is released, not that of the stash. If the output budget ends it, the next turn looks at the bound
    again (`keep_bound`).
    """
    unit, releases, before = turn.unit, turn.releases, len(turn.unit.stash)
    is_next = bool(releases) and releases[-1].cause is Wake.BOUND and not releases[-1].is_rest
    lowest, oldest = unit.lowest, None if is_next else unit.oldest
    missing = "" if is_next or lowest is None else turn.missing(lowest)
    while lowest is not None and unit.is_free and is_beyond_bound(turn):
        turn.released_to = max(turn.released_to, _last_tie(unit, lowest).offset)
        _force(turn, lowest)
        lowest = unit.lowest
    turn.unmark()
    released = before - len(unit.stash)
    if oldest is not None:
        _note_release(turn, Wake.BOUND, missing, oldest, released)
    elif is_next:
        releases[-1] = replace(releases[-1], envelopes=releases[-1].envelopes + released)


def _last_tie(unit: Unit, entry: Entry) -> Entry:
    """Return the last of those in the stash that have the lane and the place of this one."""
    return unit.stash[bisect_right(unit.stash, entry.order[:2], key=lambda each: each.order[:2]) - 1]


def _release_in_order(turn: Turn) -> None:
    """Handle in order, as if it had just come, what has waited its time, and all that is before it. The others wait on.

    A deadline that an order set is that of the oldest, and counts until the oldest was handled.
    """
    unit, settings, oldest, ordered = turn.unit, turn.context.settings, turn.unit.oldest, turn.unit.deadline_at
    due = [each for each in unit.stash if not each.stashed_at <= turn.now < deadline_of(each, settings)]
    if oldest is not None and ordered is not None and ordered <= turn.now:
        due.append(oldest)
    if due:
        turn.cause = Wake.DEADLINE
        release_up_to(turn, max(each.order for each in due))
        turn.cause = None
    if oldest is None or not unit.has(oldest):
        unit.amend(deadline_at=None)


def release_up_to(turn: Turn, last: tuple[str, int, int]) -> None:
    """Handle the stash in order, as if it had just come, up to the entry with the order `last` and its ties."""
    unit = turn.unit
    while unit.is_free and unit.stash and unit.stash[0].order[:2] <= last[:2]:
        if turn.is_spent:
            unit.amend(remainder=Remainder(cause=Wake.DEADLINE))
            return
        top = unit.stash[0]
        turn.current = top.envelope
        unit.remove(top)
        turn.attempt(top.envelope, top)


def try_again(turn: Turn, *, is_early: bool = False) -> None:
    """Try the head under retry again if it is due, or earlier, and handle what becomes acceptable. No effect during a hold."""
    retry = turn.unit.retry
    if retry is None or retry.is_called or turn.unit.hold is not None:
        return
    if not is_early and not is_due(retry, turn.now, turn.context.settings):
        return
    _attempt_again(turn, retry)


def call_again(turn: Turn) -> None:
    """Prepare the call of the head's handler that could not begin until now. No effect during a hold.

    What arrived meanwhile may go before a head that is forced, or say less of what is missing.
    """
    retry = turn.unit.retry
    if retry is None or not retry.is_called or turn.unit.hold is not None:
        return
    turn.current = retry.entry.envelope
    if retry.is_forced:
        _attempt_again(turn, retry)
        return
    try:
        turn.call_head(retry)
    except PermanentError as error:
        turn.dead_letter_retry(retry, error)
        unstash_all(turn)


def take_up(turn: Turn, answer: Answer) -> None:
    """Take up the answer of the head's handler, continue the release that it was part of, and handle what becomes acceptable.

    No effect if the answer is of another call.
    """
    unit, retry = turn.unit, turn.unit.retry
    if retry is None or not retry.is_called or unit.hold is not None:
        return
    if not answer.call.is_of(retry.entry.offset, retry.attempts):
        return
    _begin_attempt(turn, retry)
    turn.answer = answer
    turn.attempt(retry.entry.envelope, retry.entry, is_forced=retry.is_forced)
    if unit.remainder is not None and unit.retry is None:  # What follows from the answer comes before arrivals that are queued.
        turn.cut_off(retry.entry.lane)
    turn.tried = retry.behind
    if retry.is_forced:
        _unstash_behind(turn, retry.entry)
    else:
        turn.unstash(retry.entry.lane, retry.entry.envelope)
    if turn.context.next_lane is not None:
        turn.unstash_each(retry.incomplete)
    if retry.behind is not None and unit.retry is None and unit.has(retry.behind.entry):
        _force_head(turn, retry.behind.entry)
    if retry.cause is not None:
        _continue_release(turn, retry.cause)
    unstash_all(turn)


def _continue_release(turn: Turn, cause: Wake) -> None:
    """Continue a release that a call of the handler has interrupted, now or in the next turn, unless the attempt failed."""
    unit = turn.unit
    if unit.remainder is not None and (unit.retry is None or unit.remainder.is_retrying):
        unit.amend(remainder=replace(unit.remainder, cause=cause))
    elif unit.is_free:
        release_stash(turn, cause, is_rest=True)


def _attempt_again(turn: Turn, retry: Retry) -> None:
    _begin_attempt(turn, retry)
    if retry.is_forced:
        turn.incomplete = None
        _go_on(turn, retry.entry)
    else:
        turn.attempt(retry.entry.envelope, retry.entry)
        turn.unstash_again(retry.entry.lane)
    unstash_all(turn)


def _begin_attempt(turn: Turn, retry: Retry) -> None:
    """Take the head, with its marks."""
    turn.is_changed, turn.tried, turn.current = True, retry, retry.entry.envelope
    turn.unit.amend(retry=None)
    turn.incomplete, turn.released_to, turn.is_ordered = retry.incomplete, retry.released_to, retry.is_ordered
    turn.cause = retry.cause


def unstash_all(turn: Turn) -> None:
    """Handle what has become acceptable while nothing could be handled, and release the stash if it exceeds its bound.

    A handler that is called now has its chance first: the bound counts again when the next envelope is stashed.
    """
    turn.unmark()
    turn.unstash_each()
    if not turn.unit.is_called:
        keep_bound(turn)


def resume(turn: Turn, remainder: Remainder) -> None:
    """Continue the remainder of an earlier turn where it was cut off."""
    unit = turn.unit
    turn.is_changed = True
    unit.amend(remainder=None)
    turn.incomplete, turn.released_to, turn.is_ordered = remainder.incomplete, remainder.released_to, remainder.is_ordered
    turn.cause = remainder.cause
    if remainder.is_retrying and unit.retry is not None:
        turn.tried = unit.retry
        unit.amend(retry=None)
        _go_on(turn, turn.tried.entry)
    elif remainder.lane is not None:
        turn.unstash_again(remainder.lane)
    if remainder.cause is not None:
        release_stash(turn, remainder.cause, is_rest=True)
    unstash_all(turn)


def keep_bound(turn: Turn) -> None:
    """Release the stash if it exceeds its bound; a hold ends. While the head is under retry nothing can be released.

    A unit that waits for a server and exceeds its bound leaves memory, if the storage keeps it. It is loaded as a whole later, so
    it may hold four times its bound at most. Beyond that, its head is dead-lettered. While its handler is called, its partition
    is not read beyond its bound, so this happens only if one poll brings so much.
    """
    unit = turn.unit
    if unit.hold is not None and is_beyond_bound(turn):
        _end_hold_at_bound(turn)
    while unit.waits_outside and is_beyond_bound(turn, _UNAVAILABLE):
        _set_head_aside(turn, "the unit's stash is more than four times its limit (stash-limit)")
        if unit.is_called:
            return
    if unit.is_free and is_beyond_bound(turn):
        release(turn, Wake.BOUND)


def _end_hold_at_bound(turn: Turn) -> None:
    """End the hold, and handle what has become acceptable meanwhile: that is not released, and has no mark of a release."""
    end_hold(turn, OrderResult.HELD_UNTIL_BOUND)
    turn.unmark()
    turn.unstash_each()


def is_beyond_bound(turn: Turn, times: int = 1) -> bool:
    """Whether the stash exceeds `times` its bound. A head under retry counts as stashed."""
    unit, settings = turn.unit, turn.context.settings
    stashed, size = len(unit.stash), unit.stashed_bytes
    if unit.retry is not None:
        stashed, size = stashed + 1, size + unit.retry.entry.size
    return stashed > times * settings.stash_limit or size > times * settings.stash_bytes


def _go_on(turn: Turn, head: Entry) -> None:
    """Continue a release whose head was under retry, with the envelopes that arrived meanwhile.

    Envelopes that have become acceptable are handled normally. Envelopes before the head go first. If the strategy gathers, the
    head gets the data that has arrived. Its mark lists what is still missing.
    """
    unit = turn.unit
    unit.add(head)
    turn.current = head.envelope
    turn.unstash_again(head.lane)
    _force_head(turn, head)


def _force_head(turn: Turn, head: Entry) -> None:
    """Force a head that is stashed again, after what goes before it."""
    unit = turn.unit
    turn.gather_with(head.envelope)
    while unit.is_free and unit.has(head):
        _force(turn, turn.context.first_before(unit, head))
    if unit.remainder is not None and unit.has(head):
        unit.remove(head)
        unit.amend(retry=turn.tried, remainder=replace(unit.remainder, is_retrying=True))


def _set_head_aside(turn: Turn, why: str) -> None:
    """Dead-letter the head, and handle the envelopes that waited for it."""
    head = turn.unit.retry
    assert head is not None, "it waits for a server or its handler"
    what = "its handler has not answered" if head.is_called else f"{head.dependency} is unavailable"
    turn.dead_letter_retry(head, PermanentError(f"{what}, and {why}"))
    turn.unstash_each(turn.incomplete)


def _force(turn: Turn, entry: Entry) -> None:
    """Force one entry, unless the normal loop has handled it already or the unit is under retry."""
    if turn.unit.is_free and turn.unit.has(entry):
        if turn.is_spent:
            turn.cut_off()
            return
        turn.current = entry.envelope
        turn.incomplete = turn.missing(entry)
        turn.unit.remove(entry)
        turn.attempt(entry.envelope, entry, is_forced=True)
        _unstash_behind(turn, entry)


def _unstash_behind(turn: Turn, forced: Entry) -> None:
    """Handle what has become acceptable by an entry that was forced."""
    incomplete, next_lane = turn.incomplete, turn.context.next_lane
    if next_lane is not None and (next_one := next_lane(forced.envelope)) is not None:
        turn.unstash(next_one)  # First its own chain: of a cycle, one beside it may wait for an event of the chain.
        turn.incomplete = incomplete
    turn.unstash(forced.lane)
