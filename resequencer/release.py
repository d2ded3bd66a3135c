"""A stash is released though something is missing: at its deadline, or because it holds too much."""

from msgspec.structs import replace

from resequencer.deadline import deadline_of
from resequencer.gathering import gather_with
from resequencer.handling import attempt, set_aside
from resequencer.stash import Stashed
from resequencer.unit import Release, Wake
from resequencer.unstash import unstash
from resequencer.working_copy import WorkingCopy

_UNAVAILABLE = 4
"""So many times its bound a unit may hold while a server is unavailable that its handler calls."""


def release(copy: WorkingCopy, cause: Wake) -> None:
    """Force the lowest, run the normal loop, and again until nothing waits (or a handler asks for time).

    Nothing happens while the head is under retry, nor at a deadline that has not come. Of what was stashed by a clock that was
    ahead, who wakes the unit knows how long it has waited. At the bound of a worker that cannot put a unit elsewhere, a head
    whose server is unavailable is set aside.
    """
    if cause is Wake.BOUND and copy.dependency is not None:
        _set_head_aside(copy, "the worker holds all that it may (stash-limit.bytes-per-worker)")
    oldest = copy.stash.oldest
    if oldest is None or not copy.is_free:
        return
    if cause is Wake.DEADLINE and oldest.stashed_at <= copy.now < deadline_of(oldest, copy.context.settings):
        return
    copy.is_changed = True
    copy.released_to = max(each.envelope.offset for each in copy.stash)
    release_stash(copy, cause)


def release_stash(copy: WorkingCopy, cause: Wake, *, is_rest: bool = False) -> None:
    """As far as the turn's share reaches. The rest of it is released by the next turn, before what arrived since."""
    oldest, lowest = copy.stash.oldest, copy.stash.lowest
    if oldest is None or lowest is None:
        return
    before, missing = len(copy.stash), copy.missing(lowest)
    gather_with(copy, oldest.envelope)
    for entry in sorted(copy.stash, key=_by_order):
        _force(copy, entry)
    if copy.remainder is not None:
        copy.remainder = replace(copy.remainder, cause=cause)
    copy.incomplete, copy.released_to = None, -1
    released, waited_ms = before - len(copy.stash), max(0, copy.now - oldest.stashed_at)
    if released:
        source_position = str(oldest.envelope.record.origin)
        copy.effects.releases.append(Release(copy.before.unit, cause, missing, released, waited_ms, source_position, is_rest))


def go_on(copy: WorkingCopy, head: Stashed) -> None:
    """A release whose head failed for a while goes on, with what has come meanwhile.

    What has become acceptable is released no more, and what stands before the head goes before it. The head takes the data
    that has come, where that is gathered, and says what is missing still.
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
    """While the head is under retry nothing can be released.

    A unit whose server is unavailable leaves memory beyond its bound, where it can. It must come back whole, so that it may hold
    no more than some times as much.
    """
    while copy.dependency is not None and is_beyond_bound(copy, _UNAVAILABLE):
        _set_head_aside(copy, "its unit holds more than four times what it may (stash-limit)")
    if copy.is_free and is_beyond_bound(copy):
        release(copy, Wake.BOUND)


def is_beyond_bound(copy: WorkingCopy, times: int = 1) -> bool:
    """Whether so many times the bound are stashed. A head that is under retry is part of what is stashed."""
    settings, stashed, size = copy.context.settings, len(copy.stash), copy.stash.size
    if copy.retry is not None:
        stashed, size = stashed + 1, size + copy.retry.entry.size
    return stashed > times * settings.stash_limit or size > times * settings.stash_bytes


def _set_head_aside(copy: WorkingCopy, why: str) -> None:
    """What followed it comes loose."""
    head = copy.retry
    assert head is not None, "it waits for a server"
    set_aside(copy, head, f"{head.dependency} unavailable, and {why}")
    for lane in copy.stash.names:
        unstash(copy, lane)


def _force(copy: WorkingCopy, entry: Stashed) -> None:
    """Unless the normal loop took it already, or the one before it is to be tried again first."""
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
