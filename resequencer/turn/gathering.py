"""Gathering: some strategies need the payment data of the whole stash before the first envelope is handled."""

from domain.envelope import DataEnvelope
from resequencer.turn.working_copy import WorkingCopy


def gather_with(copy: WorkingCopy, envelope: DataEnvelope) -> None:
    """Take over the payment data of all stashed envelopes and of this one, in order of arrival, if the strategy gathers."""
    if not copy.strategy.gathers or copy.has_gathered or not copy.stash:
        return
    waiting = {each.envelope.offset: each.envelope for each in copy.stash} | {envelope.offset: envelope}
    for offset in sorted(waiting):
        if offset > copy.gathered_to:
            copy.current = waiting[offset]
            copy.data = copy.data.absorb(copy.current)
            copy.gathered_to = offset
    copy.has_gathered = True
