"""The settings of a unit of work: its times and its limits."""

from functools import cached_property
from typing import Annotated, Literal

import msgspec

from resequencer.keys.configuration_key import Key, Section
from resequencer.keys.value_types import Duration, Number, Size, Whole

_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = 1_000, 30_000
"""The pause between two calls for an envelope whose server is unavailable doubles from the first to the longest."""


LEARNED: Literal["learned"] = "learned"
"""The value of `stash-timeout` for a wait as long as the late envelopes of a flow really take."""


class LearnedTimeout(msgspec.Struct, frozen=True):
    """The bounds of learned waits, in milliseconds. They also apply to the default wait of flows without a profile."""

    at_least_ms: Annotated[int, Key(Duration("1ms", "30d"))] = 1_000
    at_most_ms: Annotated[int, Key(Duration("1ms", "30d"))] = 600_000

    def within(self, wait_ms: int) -> int:
        return min(max(wait_ms, self.at_least_ms), self.at_most_ms)


_STASH_TIMEOUT = Duration("1ms", "30d", "the sum of the attempts' delays", LEARNED)
_STASH_BYTES = Size("2K", "1024G", "an eighth of bytes-per-worker")


class ResequencerSettings(msgspec.Struct, frozen=True, dict=True):
    """The settings of a unit of work. Durations are in milliseconds; conf/reference.conf explains each key.

    `stash_timeout_ms` None means the sum of the attempts' delays. `max_attempts` includes the first attempt. A unit that stashes
    more than `stash_limit` envelopes, or more than about `stash_bytes` in memory, is released as at its deadline. A unit may have
    at most `stash_bytes` of data.
    """

    processing_timeout_ms: Annotated[int, Key(Duration("1ms", "1h"))] = 3_000
    max_attempts: Annotated[int, Key(Whole(1, 100))] = 3
    backoff_factor: Annotated[float, Key(Number(1, 100))] = 2.0
    jitter_factor: Annotated[float, Key(Number(0, 1))] = 0.2
    stash_timeout_ms: Annotated[int | Literal["learned"] | None, Key(_STASH_TIMEOUT)] = None
    stash_limit: Annotated[int, Key(Whole(1, 1_000_000), "stash-limit.envelopes-per-unit")] = 1_000
    stash_bytes: Annotated[int, Key(_STASH_BYTES, "stash-limit.bytes-per-unit")] = 64 * 1024 * 1024
    learned_timeout: Annotated[LearnedTimeout, Section("learned-timeout")] = LearnedTimeout()

    @cached_property
    def learned(self) -> LearnedTimeout | None:
        """The bounds of the waits, if they are learned."""
        return self.learned_timeout if self.stash_timeout_ms == LEARNED else None

    def delay_ms(self, attempt: int) -> float:
        """The time from the failure of this attempt (from 1) to the beginning of the next, before jitter."""
        return self.processing_timeout_ms * self.backoff_factor ** (attempt - 1)

    def pause_ms(self, calls: int, jitter: float) -> int:
        """The pause before the next call after `calls` calls (from 1) that found a server unavailable."""
        doubled: float = _FIRST_PAUSE_MS * 2 ** min(calls - 1, 16)
        return round(min(doubled * jitter, _LONGEST_PAUSE_MS))

    @cached_property
    def longest_pause_ms(self) -> int:
        """The longest pause before an attempt. A stored pause that ends later comes from a clock that was ahead."""
        return round(max(_LONGEST_PAUSE_MS, self.delay_ms(self.max_attempts) * (1 + self.jitter_factor)))

    @cached_property
    def deadline_ms(self) -> int:
        """How long a stashed envelope may wait if its flow has no profile: 3 + 6 + 12 = 21 s by default."""
        if isinstance(self.stash_timeout_ms, int):
            return self.stash_timeout_ms
        total = round(sum(self.delay_ms(attempt) for attempt in range(1, self.max_attempts + 1)))
        return total if self.learned is None else self.learned.within(total)

    @property
    def shortest_deadline_ms(self) -> int:
        return self.deadline_ms if self.learned is None else self.learned.at_least_ms

    @property
    def longest_deadline_ms(self) -> int:
        return self.deadline_ms if self.learned is None else self.learned.at_most_ms
