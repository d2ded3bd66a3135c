"""Handle stashed envelopes once they have become acceptable."""

from domain.errors import PermanentError
from resequencer.stash import Stashed
from resequencer.turn.gathering import gather_with
from resequencer.turn.handling import attempt
from resequencer.turn.working_copy import WorkingCopy


def unstash(copy: WorkingCopy, lane: str) -> None:
    """Handle envelopes from the top of the lane, until none is acceptable or the turn's share is used up."""
    while copy.is_free and (top := copy.stash.find_top(lane)) is not None:
        if not _accepts(copy, top):
            break
        if copy.is_spent:
            copy.cut_off(lane)
            break
        gather_with(copy, top.envelope)
        copy.current = top.envelope
        if top.envelope.offset > copy.released_to:
            copy.incomplete = None  # It arrived after the release: the release's mark counts neither for it nor for later ones.
        copy.stash = copy.stash.without(top)
        attempt(copy, top)


def _accepts(copy: WorkingCopy, top: Stashed) -> bool:
    """Whether the envelope is acceptable. True if the strategy fails on it: the attempt then fails too and dead-letters it."""
    try:
        return copy.strategy.accepts(copy.state, top.envelope)
    except PermanentError:
        return True
