"""When a failed attempt is made again, and when it was the last."""

from typing import Protocol

from msgspec.structs import replace

from resequencer.clock import Instant
from resequencer.errors import DependencyUnavailable, TransientError, words_of
from resequencer.printable import printable
from resequencer.settings import ResequencerSettings
from resequencer.unit import Retry

_WORDS = 200
"""How many characters of an attempt's error are stored with the unit and shown to operators."""


class Chance(Protocol):
    """The source of jitter, for example `random.Random`."""

    def uniform(self, a: float, b: float) -> float: ...


def next_attempt(
    head: Retry, before: Retry | None, error: TransientError, settings: ResequencerSettings, chance: Chance
) -> Retry | None:
    """Return the head of a unit with its next attempt, after one at the instant `head.due_at` failed; None if it was the last.

    `head` has made the attempts before this one, and `before` is its retry until now. A call to a server that is unavailable does
    not count as an attempt.
    """
    now, factor = head.due_at, settings.jitter_factor
    if isinstance(error, DependencyUnavailable):
        calls = before.calls + 1 if before is not None and before.dependency == error.name else 1
        pause_ms = settings.pause_ms(calls, chance.uniform(1 - factor, 1 + factor))
        return replace(head, due_at=now + pause_ms, dependency=error.name, calls=calls)
    attempts = head.attempts + 1
    if attempts >= settings.max_attempts:
        return None
    pause_ms = round(settings.delay_ms(attempts) * chance.uniform(1 - factor, 1 + factor))
    why = printable(words_of(error)[:_WORDS])
    return replace(head, attempts=attempts, due_at=now + pause_ms, why=why)


def is_due(retry: Retry, now: Instant, settings: ResequencerSettings) -> bool:
    """Whether the next attempt is due. One farther in the future than any pause was set by a clock that was ahead: it is due."""
    return not 0 < retry.due_at - now <= settings.longest_pause_ms
