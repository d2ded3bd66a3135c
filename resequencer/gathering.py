"""A unit's payment data is complete before the first of its envelopes is handled, where the strategy wants it so."""

from domain.envelope import DataEnvelope
from resequencer.working_copy import WorkingCopy


def gather_with(copy: WorkingCopy, envelope: DataEnvelope) -> None:
    """On completion the data of everything stashed is taken over, in order of arrival, and of the one that completes."""
    if not copy.strategy.gathers or copy.has_gathered or not copy.stash:
        return
    waiting = {each.envelope.offset: each.envelope for each in copy.stash} | {envelope.offset: envelope}
    for offset in sorted(waiting):
        if offset > copy.gathered_to:
            copy.current = waiting[offset]
            copy.data = copy.data.absorb(copy.current)
            copy.gathered_to = offset
    copy.has_gathered = True
