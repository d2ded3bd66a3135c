"""Describes the deadline of stashed envelopes in words, if it is learned."""

from resequencer.keys.value_types import Duration
from resequencer.printable import counted
from resequencer.settings import ResequencerSettings

_DURATION = Duration("1ms", "30d")


def deadline_words(settings: ResequencerSettings, profiles: int) -> str | None:
    """Return the words. `profiles` is how many the release in use has; None if the deadline is not learned."""
    learned = settings.learned
    if learned is None:
        return None
    otherwise = _DURATION.show(settings.deadline_ms)
    if not profiles:
        return f"learned, but the current lookups have no completion-profiles; {otherwise} for all flows"
    least, most = _DURATION.show(learned.at_least_ms), _DURATION.show(learned.at_most_ms)
    return f"learned, {counted(profiles, 'completion-profile')}, between {least} and {most}; {otherwise} for other flows"
