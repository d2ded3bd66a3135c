"""How long a stashed envelope waits, and the deadline of its unit."""

from domain.clock import Instant
from domain.envelope import DataEnvelope
from resequencer.settings import ResequencerSettings
from resequencer.stash import Stashed
from resequencer.turn.context import TurnContext


def find_learned_wait_ms(envelope: DataEnvelope, context: TurnContext) -> int | None:
    """Return the learned wait of an envelope, in milliseconds; None if only the configuration determines the wait.

    The wait is stored with the envelope when it is stashed. A new release of the lookups changes only envelopes stashed later.
    """
    learned, profiles = context.settings.learned, context.profiles
    if learned is None:
        return None
    lateness_ms = None if profiles is None else profiles.find_lateness_ms(envelope.processing_entity, envelope.flow)
    return context.settings.deadline_ms if lateness_ms is None else learned.within(lateness_ms)


def deadline_of(oldest: Stashed, settings: ResequencerSettings) -> Instant:
    """Return the deadline of a unit from the oldest envelope of its stash. Today's bounds apply also to waits learned before."""
    if settings.learned is None or oldest.learned_wait_ms is None:
        return oldest.stashed_at + settings.deadline_ms
    return oldest.stashed_at + settings.learned.within(oldest.learned_wait_ms)
