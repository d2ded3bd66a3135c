"""The retry of an envelope after a transient error of its handler: the pause, and its jitter."""

from msgspec.structs import replace

from domain.errors import TransientError, words_of
from domain.printable import printable
from resequencer.stash import Stashed
from resequencer.turn.working_copy import WorkingCopy
from resequencer.unit import Retry

_WORDS = 200
"""How many characters of an attempt's error are stored with the unit and shown to operators."""


def postpone(copy: WorkingCopy, entry: Stashed, attempts: int, error: TransientError, *, is_forced: bool) -> None:
    """Make the entry the head of its unit's stash until its next attempt. `attempts` have failed so far."""
    due_at = copy.now + round(copy.context.settings.delay_ms(attempts) * _jitter(copy))
    why = printable(words_of(error)[:_WORDS])
    copy.retry = Retry(entry, attempts, due_at, copy.incomplete, is_forced, copy.released_to, why=why, is_ordered=copy.is_ordered)
    copy.effects.count("retries")
    copy.effects.stash(entry)


def wait_for_server(copy: WorkingCopy, retry: Retry) -> None:
    """Make the entry the head of its unit's stash because its server is unavailable. The call does not count as an attempt."""
    due_at = copy.now + copy.context.settings.pause_ms(retry.calls, _jitter(copy))
    copy.retry = replace(retry, due_at=due_at)
    copy.effects.stash(retry.entry)


def _jitter(copy: WorkingCopy) -> float:
    """Return a random factor, evenly distributed from 1 - `jitter-factor` to 1 + `jitter-factor`."""
    factor = copy.context.settings.jitter_factor
    return copy.context.chance.uniform(1 - factor, 1 + factor)
