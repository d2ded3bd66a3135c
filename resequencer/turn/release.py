"""The release of a stash although something is missing: at its deadline, because it is too large, or by an order."""

from msgspec.structs import replace

from domain.errors import PermanentError
from domain.order import OrderResult
from resequencer.stash import Stashed
from resequencer.turn.gathering import gather_with
from resequencer.turn.handling import attempt, set_aside
from resequencer.turn.hold import deadline_at, end_hold, mend_deadline
from resequencer.turn.unstash import unstash
from resequencer.turn.working_copy import WorkingCopy
from resequencer.unit import Release, Wake

_UNAVAILABLE = 4
"""A unit whose server is unavailable may hold this many times its normal bound."""


def release(copy: WorkingCopy, cause: Wake) -> None:
    """Force the lowest envelope, run the normal loop, and repeat until nothing waits or a handler asks for a retry.

    Nothing happens while the head is under retry, or before the deadline. If the stash has a time in the future, from a clock
    that was ahead, the deadline is not checked here: the guardian did so. For the bound of a worker (`Wake.BOUND`), a hold ends,
    and a head whose server is unavailable is dead-lettered first.
    """
    if cause is Wake.BOUND and copy.hold is not None:
        end_hold(copy, OrderResult.HELD_UNTIL_BOUND)
    if cause is Wake.BOUND and copy.dependency is not None:
        _set_head_aside(copy, "the worker's stash is full (stash-limit.bytes-per-worker)")
    oldest = copy.stash.oldest
    if oldest is None or not copy.is_free:
        return
    if cause is Wake.DEADLINE:
        mend_deadline(copy, oldest)
        if oldest.stashed_at <= copy.now < deadline_at(copy, oldest):
            return
    copy.is_changed, copy.is_ordered = True, cause is Wake.ORDER
    copy.released_to = max(each.envelope.offset for each in copy.stash)
    release_stash(copy, cause)


def release_stash(copy: WorkingCopy, cause: Wake, *, is_rest: bool = False) -> None:
    """Release the stash as far as the turn's share allows. The next turn releases the rest, before later arrivals."""
    oldest, lowest = copy.stash.oldest, copy.stash.lowest
    if oldest is None or lowest is None:
        return
    before, missing = len(copy.stash), copy.missing(lowest)
    gather_with(copy, oldest.envelope)
    for entry in sorted(copy.stash, key=_by_order):
        _force(copy, entry)
    if copy.remainder is not None:
        copy.remainder = replace(copy.remainder, cause=cause)
    copy.incomplete, copy.released_to, copy.is_ordered = None, -1, False
    released, waited_ms = before - len(copy.stash), max(0, copy.now - oldest.stashed_at)
    if released:
        source_position = str(oldest.envelope.record.origin)
        copy.effects.releases.append(Release(copy.before.unit, cause, missing, released, waited_ms, source_position, is_rest))


def go_on(copy: WorkingCopy, head: Stashed) -> None:
    """Continue a release whose head was under retry, with the envelopes that arrived meanwhile.

    Envelopes that have become acceptable are handled normally. Envelopes before the head go first. If the strategy gathers, the
    head gets the data that has arrived. Its mark lists what is still missing.
    """
    copy.stash, copy.current = copy.stash.add(head), head.envelope
    unstash(copy, head.rank.lane)
    gather_with(copy, head.envelope)
    while copy.is_free and _waits(copy, head):
        top = copy.stash.find_top(head.rank.lane)
        assert top is not None, "the head is in its lane"
        _force(copy, top)
    if copy.remainder is not None and _waits(copy, head):
        copy.stash, copy.retry = copy.stash.without(head), copy.tried
        copy.remainder = replace(copy.remainder, is_retrying=True)


def keep_bound(copy: WorkingCopy) -> None:
    """Release the stash if it exceeds its bound; a hold ends. While the head is under retry nothing can be released.

    A unit whose server is unavailable and that exceeds its bound leaves memory, if the storage keeps it. It is loaded as a whole
    later, so it may hold four times its bound at most. Beyond that, its head is dead-lettered.
    """
    if copy.hold is not None and is_beyond_bound(copy):
        end_hold(copy, OrderResult.HELD_UNTIL_BOUND)
    while copy.dependency is not None and is_beyond_bound(copy, _UNAVAILABLE):
        _set_head_aside(copy, "the unit's stash is more than four times its limit (stash-limit)")
    if copy.is_free and is_beyond_bound(copy):
        release(copy, Wake.BOUND)


def is_beyond_bound(copy: WorkingCopy, times: int = 1) -> bool:
    """Whether the stash exceeds `times` its bound. A head under retry counts as stashed."""
    settings, stashed, size = copy.context.settings, len(copy.stash), copy.stash.size
    if copy.retry is not None:
        stashed, size = stashed + 1, size + copy.retry.entry.size
    return stashed > times * settings.stash_limit or size > times * settings.stash_bytes


def _set_head_aside(copy: WorkingCopy, why: str) -> None:
    """Dead-letter the head, and handle the envelopes that waited for it."""
    head = copy.retry
    assert head is not None, "it waits for a server"
    set_aside(copy, head, PermanentError(f"{head.dependency} is unavailable, and {why}"))
    for lane in copy.stash.names:
        unstash(copy, lane)


def _force(copy: WorkingCopy, entry: Stashed) -> None:
    """Force one entry, unless the normal loop has handled it already or the unit is under retry."""
    if copy.is_free and _waits(copy, entry):
        if copy.is_spent:
            copy.cut_off()
            return
        copy.current = entry.envelope
        copy.incomplete = copy.missing(entry)
        copy.stash = copy.stash.without(entry)
        attempt(copy, entry, is_forced=True)
        unstash(copy, entry.rank.lane)


def _waits(copy: WorkingCopy, entry: Stashed) -> bool:
    return copy.stash.ids.find(entry.envelope.id_hash) is not None


def _by_order(entry: Stashed) -> tuple[int, int]:
    return entry.order
