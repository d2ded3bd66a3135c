"""What was set aside is taken up again once it has become acceptable."""

from domain.errors import PermanentError
from resequencer.gathering import gather_with
from resequencer.handling import attempt
from resequencer.stash import Stashed
from resequencer.working_copy import WorkingCopy


def unstash(copy: WorkingCopy, lane: str) -> None:
    """From the top of the lane, until nothing moves or the turn has let out its share."""
    while copy.is_free and (top := copy.stash.find_top(lane)) is not None:
        if not _accepts(copy, top):
            break
        if copy.is_spent:
            copy.cut_off(lane)
            break
        gather_with(copy, top.envelope)
        copy.current = top.envelope
        if top.envelope.offset > copy.released_to:
            copy.incomplete = None  # It came after the release, and what follows it misses no more than it does.
        copy.stash = copy.stash.without(top)
        attempt(copy, top)


def _accepts(copy: WorkingCopy, top: Stashed) -> bool:
    """A strategy that fails on an envelope gets it out of the way: handling it asks again and dead-letters it."""
    try:
        return copy.strategy.accepts(copy.state, top.envelope)
    except PermanentError:
        return True
