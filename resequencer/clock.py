"""The interface of the clock, which is passed to all code that needs an instant.

A clock that was wrong for one look must neither end what is young nor postpone what is due. So a process compares the wall clock
with the time that has really passed since the machine was started, and continues by that one while the two disagree.
"""

from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Instant: TypeAlias = int
"""Milliseconds since 1970-01-01T00:00Z. Names of instants end in `_at`."""


class Clock(Protocol):
    """A wall clock: it may jump either way. A monotonic clock is not possible, because stored deadlines must stay valid."""

    def now(self) -> Instant: ...


@lru_cache(16)
def instant_text(at: Instant) -> str:
    """Return the instant as `2026-03-28T23:33:55.941Z`: ISO 8601, UTC, to the millisecond. Cached for a cycle's instants."""
    moment = _EPOCH + timedelta(milliseconds=at)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z"


def instant_of(text: str) -> Instant:
    """Return the instant of an ISO 8601 text. A text without a time zone is in UTC.

    Raises:
        ValueError: The text is not an instant, or is out of range.
    """
    moment = datetime.fromisoformat(text)
    try:
        return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000)
    except OverflowError as error:
        raise ValueError(f"{text} is out of range") from error


SKEW_MS = 1_000
"""Differences of up to a second are believed, between two looks and between two machines."""

SETTLED_MS = 60_000
"""A clock that was set is believed after it has agreed with the time that passes for so long."""

TRUSTED_MS = 3_600_000
"""What cannot be undone waits until the clock has agreed for so long."""

MAX_AHEAD_MS = 86_400_000
"""By how much a clock advances between two looks, if it was right before and a process looked."""

_DRIFT = 1_000
"""Two clocks may drift apart by a thousandth of the time between two looks: twice what a clock is slewed by at most."""

_KEEP_MS, _NEWS_MS = 10_000, 1_000
"""How often what is known is kept, and how often at most while it changes with each look."""

_Key = TypeVar("_Key", bound=Hashable)
_ONE_THREAD: AbstractContextManager[Any] = nullcontext()


class Belief(msgspec.Struct, frozen=True):
    """What a process knows of a clock. Times without `Instant` are milliseconds since the machine was started.

    In the run `boot` of the machine the clock was `offset` ahead of them, when they were last compared at `seen`; it has agreed
    since `agreed_since`. `is_settled` once it has agreed for long enough to be believed against a jump. `floor` is the last
    instant at which it was trusted: nothing that was written before is from later. While the clock disagrees, it has the offset
    `other` since `other_since`; None if it agrees. At `ahead_at` it was trusted for the first time after it had gone ahead by
    more than `MAX_AHEAD_MS`, by a jump or because no process looked.
    """

    boot: str
    offset: int
    seen: int
    agreed_since: int
    is_settled: bool = False
    floor: Instant = 0
    other: int | None = None
    other_since: int = 0
    ahead_at: Instant = 0


class SteadyClock:
    """A `Clock` that advances by the time that passes while the wall clock disagrees with it. One thread, or a `lock`.

    A jump is believed after `SETTLED_MS`, and at once before the clock was settled; one to before the `floor` after `trusted_ms`.
    `passed` returns the milliseconds since the machine was started, with those in which it was suspended. `known` is what an
    earlier process has handed to `keep`.
    """

    def __init__(
        self,
        wall: Callable[[], Instant],
        passed: Callable[[], int],
        boot: str = "",
        *,
        trusted_ms: int = TRUSTED_MS,
        known: Belief | None = None,
        keep: Callable[[Belief], object] | None = None,
        lock: AbstractContextManager[Any] = _ONE_THREAD,
    ) -> None:
        self._wall, self.passed, self._boot = wall, passed, boot
        self._trusted_ms, self._settled_ms = trusted_ms, min(SETTLED_MS, trusted_ms)
        self._floor, self._ahead_at = (0, 0) if known is None else (known.floor, known.ahead_at)
        self._belief: Belief | None = None
        if known is not None and known.boot == boot and (away_ms := passed() - known.seen) >= 0:
            # Time in which no process looked tells nothing of an offset that disagrees.
            self._belief = msgspec.structs.replace(known, other_since=known.other_since + away_ms)
        self._keep, self._kept_at = keep, -_KEEP_MS
        self._lock = lock

    def now(self) -> Instant:
        return self.read(self._wall)

    def read(self, wall: Callable[[], Instant]) -> Instant:
        """Return the instant to go by; `wall` asks the wall clock. How long the answer takes is no disagreement."""
        asked = self.passed()
        found = wall()
        passed = self.passed()
        with self._lock:
            before, after = self._belief, self._compared(found - passed, found - asked, passed)
            self._belief = after
            is_news = before is None or (before.agreed_since, before.is_settled) != (after.agreed_since, after.is_settled)
            keeps = self._keep is not None and passed - self._kept_at >= (_NEWS_MS if is_news else _KEEP_MS)
            self._kept_at = passed if keeps else self._kept_at
        if keeps and self._keep is not None:
            self._keep(after)
        return after.offset + passed

    @property
    def is_settled(self) -> bool:
        """Whether the clock is believed against a jump: what others see, and cannot be taken back, waits for it."""
        self.now()
        return self._agreed_ms() >= self._settled_ms

    @property
    def is_trusted(self) -> bool:
        """Whether the clock has agreed for so long that by it something may be deleted."""
        self.now()
        return self.was_trusted

    @property
    def was_trusted(self) -> bool:
        """Whether the clock was trusted when it was last read."""
        return self._agreed_ms() >= self._trusted_ms

    @property
    def counts_from(self) -> Instant | None:
        """The instant from which on, at the earliest, the time counts after which something ends; None: not trusted.

        What was written before may have been written just now, by a clock that was behind.
        """
        now = self.now()
        return min(self._ahead_at, now) if self.was_trusted else None

    def _agreed_ms(self) -> int:
        with self._lock:
            return -1 if self._belief is None else self._belief.seen - self._belief.agreed_since

    def _compared(self, lowest: int, highest: int, passed: int) -> Belief:
        """Return what is known after a look. The offset was from `lowest` to `highest`, for the answer took that long."""
        believed = self._belief
        if believed is None:
            # Time does not begin before what was written.
            begins = max(lowest, self._floor - passed)
            return Belief(self._boot, begins, passed, passed, floor=self._floor, ahead_at=self._ahead_at)
        slack = SKEW_MS + max(0, passed - believed.seen) // _DRIFT
        if lowest - slack <= believed.offset <= highest + slack:
            return self._agreed(believed, min(max(believed.offset, lowest), highest), passed)
        offset, since = believed.other, believed.other_since
        if offset is None or not lowest - SKEW_MS <= offset <= highest + SKEW_MS:
            offset, since = lowest, passed
        waits = self._settled_ms if believed.is_settled else 0
        if offset + passed < self._floor:
            waits = self._trusted_ms
        if passed - since < waits:
            return msgspec.structs.replace(believed, seen=passed, agreed_since=passed, other=offset, other_since=since)
        self._floor = min(self._floor, offset + passed)
        return Belief(self._boot, offset, passed, passed, floor=self._floor, ahead_at=self._ahead_at)

    def _agreed(self, believed: Belief, offset: int, passed: int) -> Belief:
        agreed_ms, is_settled = passed - believed.agreed_since, believed.is_settled
        if agreed_ms >= self._trusted_ms:
            now = offset + passed
            self._ahead_at = now if 0 < self._floor < now - MAX_AHEAD_MS else self._ahead_at
            self._floor = max(self._floor, now)
        is_settled = is_settled or agreed_ms >= self._settled_ms
        known = {"floor": self._floor, "ahead_at": self._ahead_at}
        return msgspec.structs.replace(believed, offset=offset, seen=passed, is_settled=is_settled, other=None, **known)


class Unchanged:
    """For how long this process has seen each of some facts unchanged: by the time that passes, whatever clocks say.

    So a lease is judged without the clock of the machine that took it: it is over once it was not renewed for its whole length.
    """

    def __init__(self, passed: Callable[[], int], lock: AbstractContextManager[Any] = _ONE_THREAD) -> None:
        self._passed, self._lock = passed, lock
        self._since: dict[Hashable, tuple[Hashable, int]] = {}

    def for_ms(self, key: Hashable, fact: Hashable) -> int:
        """Return for how many milliseconds the fact has been as it is; 0 when it is seen for the first time."""
        with self._lock:
            return self._seen(key, fact, self._passed())

    def look(self, facts: Mapping[_Key, Hashable]) -> dict[_Key, int]:
        """Return it for each of the facts. Those that are not there any more are forgotten."""
        with self._lock:
            now = self._passed()
            self._since = {key: since for key, since in self._since.items() if key in facts}
            return {key: self._seen(key, fact, now) for key, fact in facts.items()}

    def _seen(self, key: Hashable, fact: Hashable, now: int) -> int:
        known = self._since.get(key)
        if known is None or known[0] != fact:
            known = self._since[key] = fact, now
        return now - known[1]
