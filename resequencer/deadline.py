"""How long what is set aside waits, and until when."""

from domain.clock import Instant
from domain.envelope import DataEnvelope
from resequencer.settings import ResequencerSettings
from resequencer.stash import Stashed
from resequencer.turn_context import TurnContext


def find_learned_wait_ms(envelope: DataEnvelope, context: TurnContext) -> int | None:
    """What it is given along when it is set aside, so that another release changes only what is set aside later.

    None where the configuration alone says how long it waits.
    """
    learned, profiles = context.settings.learned, context.profiles
    if learned is None:
        return None
    lateness_ms = None if profiles is None else profiles.find_lateness_ms(envelope.processing_entity, envelope.flow)
    return context.settings.deadline_ms if lateness_ms is None else learned.within(lateness_ms)


def deadline_of(oldest: Stashed, settings: ResequencerSettings) -> Instant:
    """Of a unit by the oldest of its stash. The bounds are those of today, also of what was learned before."""
    if settings.learned is None or oldest.learned_wait_ms is None:
        return oldest.stashed_at + settings.deadline_ms
    return oldest.stashed_at + settings.learned.within(oldest.learned_wait_ms)
