"""How long what is stashed waits, in words, where that is learned."""

from domain.printable import counted
from domain.value_types import Duration
from resequencer.settings import ResequencerSettings

_DURATION = Duration("1ms", "30d")


def deadline_words(settings: ResequencerSettings, profiles: int) -> str | None:
    """`profiles` is how many the release in use has; None where the configuration alone says how long."""
    learned = settings.learned
    if learned is None:
        return None
    otherwise = _DURATION.show(settings.deadline_ms)
    if not profiles:
        return f"learned, but the current lookups have no completion-profiles; {otherwise} for all flows"
    least, most = _DURATION.show(learned.at_least_ms), _DURATION.show(learned.at_most_ms)
    return f"learned, {counted(profiles, 'completion-profile')}, between {least} and {most}; {otherwise} for other flows"
