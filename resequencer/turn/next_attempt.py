"""The next attempt of a unit's head, and what becomes acceptable when nothing holds a unit up any more."""

from resequencer.turn.handling import attempt
from resequencer.turn.release import go_on, keep_bound
from resequencer.turn.unstash import unstash
from resequencer.turn.working_copy import WorkingCopy


def try_again(copy: WorkingCopy, *, is_early: bool = False) -> None:
    """Try the head under retry again if it is due, or earlier, and handle what becomes acceptable. No effect during a hold."""
    retry = copy.retry
    if retry is None or copy.hold is not None:
        return
    if 0 < retry.due_at - copy.now <= copy.context.settings.longest_pause_ms and not is_early:
        return
    copy.is_changed = True
    copy.tried, copy.retry = retry, None
    copy.incomplete, copy.released_to, copy.is_ordered = retry.incomplete, retry.released_to, retry.is_ordered
    if retry.is_forced:
        copy.incomplete = None
        go_on(copy, retry.entry)
    else:
        attempt(copy, retry.entry)
        unstash(copy, retry.entry.rank.lane)
    unstash_all(copy)


def unstash_all(copy: WorkingCopy) -> None:
    """Handle what has become acceptable while nothing could be handled, and release the stash if it exceeds its bound."""
    copy.incomplete, copy.released_to, copy.is_ordered = None, -1, False
    for lane in copy.stash.names:
        unstash(copy, lane)
    keep_bound(copy)
