"""How a unit of work behaves in time and how much it may hold."""

from functools import cached_property

import msgspec

_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = 1_000, 30_000
"""Between two calls for an envelope whose server is unavailable: doubled from the first to the longest."""


class LearnedTimeout(msgspec.Struct, frozen=True):
    """What was learned counts within these bounds, in milliseconds, and so does what is waited where nothing was learned."""

    at_least_ms: int = 1_000
    at_most_ms: int = 600_000

    def within(self, wait_ms: int) -> int:
        return min(max(wait_ms, self.at_least_ms), self.at_most_ms)


class ResequencerSettings(msgspec.Struct, frozen=True, dict=True):
    """Durations in milliseconds; see conf/reference.conf for each key.

    `stash_timeout_ms` None means the sum of the attempts' delays, or what was `learned` where that is set. `max_attempts`
    counts the first one. A unit that stashes more than `stash_limit` envelopes, or more than about `stash_bytes` in memory, is
    released as at its deadline; no more than `stash_bytes` of payment data are kept of it.
    """

    processing_timeout_ms: int = 3_000
    max_attempts: int = 3
    backoff_factor: float = 2.0
    jitter_factor: float = 0.2
    stash_timeout_ms: int | None = None
    stash_limit: int = 1_000
    stash_bytes: int = 64 * 1024 * 1024
    learned: LearnedTimeout | None = None

    def delay_ms(self, attempt: int) -> float:
        """From the beginning of this attempt (from 1) to the beginning of the next, before jitter."""
        return self.processing_timeout_ms * self.backoff_factor ** (attempt - 1)

    def pause_ms(self, calls: int, jitter: float) -> int:
        """After so many calls (from 1) that found a server unavailable, until the next."""
        doubled: float = _FIRST_PAUSE_MS * 2 ** min(calls - 1, 16)
        return round(min(doubled * jitter, _LONGEST_PAUSE_MS))

    @cached_property
    def longest_pause_ms(self) -> int:
        """No pause before another attempt is longer: one that ends later was begun by a clock that was ahead."""
        return round(max(_LONGEST_PAUSE_MS, self.delay_ms(self.max_attempts) * (1 + self.jitter_factor)))

    @cached_property
    def deadline_ms(self) -> int:
        """How long a stashed envelope may wait, where nothing was learned of its flow: 3 + 6 + 12 = 21 s by default."""
        if self.stash_timeout_ms is not None:
            return self.stash_timeout_ms
        total = round(sum(self.delay_ms(attempt) for attempt in range(1, self.max_attempts + 1)))
        return total if self.learned is None else self.learned.within(total)

    @property
    def shortest_deadline_ms(self) -> int:
        return self.deadline_ms if self.learned is None else self.learned.at_least_ms

    @property
    def longest_deadline_ms(self) -> int:
        return self.deadline_ms if self.learned is None else self.learned.at_most_ms
