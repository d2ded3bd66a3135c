"""The state of a worker's region: where its interval is, and what became of the last reset. Pure: instants are handed in.

A region is one worker's source, units, storage and sinks, which commit and reset together (docs/regions.md).
"""

from enum import StrEnum
from typing import Annotated

import msgspec

from domain.clock import Instant, instant_text
from domain.configuration_key import Key
from domain.value_types import Choice, Duration, Whole

_LONGEST_PAUSE_MS = 8_000


class Trigger(StrEnum):
    """What begins the next interval. OPERATOR_DRIVEN: the source, as soon as it has records. PERIODIC: the clock."""

    OPERATOR_DRIVEN = "operator-driven"
    PERIODIC = "periodic"


class RegionState(StrEnum):
    """The states of a region. A region that waits for a server is not in a state of its own: it stays where it is."""

    RUNNING = "running"
    DRAINING = "draining"
    CHECKPOINTING = "checkpointing"
    PUBLISHING = "publishing"
    RESETTING = "resetting"
    WAITING = "waiting for a server"
    FAILED = "failed"
    STOPPED = "stopped"


class RegionSettings(msgspec.Struct, frozen=True):
    """`trigger_count` None: the ingress's batch-size. Durations are in ms (conf/reference.conf)."""

    trigger: Annotated[Trigger, Key(Choice(tuple(Trigger)))] = Trigger.OPERATOR_DRIVEN
    trigger_count: Annotated[int | None, Key(Whole(1, 100_000, "the ingress's batch-size"))] = None
    period_ms: Annotated[int, Key(Duration("10ms", "1m"))] = 200
    drain_timeout_ms: Annotated[int, Key(Duration("1s", "1h"))] = 180_000
    reset_timeout_ms: Annotated[int, Key(Duration("1s", "1h"))] = 180_000
    max_consecutive_reset_attempts: Annotated[int, Key(Whole(1, 1_000))] = 5


class Failure(msgspec.Struct, frozen=True):
    """The participant that failed last: `source`, `storage`, or the name of a sink; why, and when (ISO 8601, UTC)."""

    participant: str
    reason: str
    at: str


class OrderedReset(msgspec.Struct, frozen=True):
    """What became of the last reset that a person ordered. `refusal` says why it was not carried out, None if it was."""

    id: str
    by: str
    refusal: str | None = None


class RegionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a region, for operators. `since` is when it began.

    `interval` counts the intervals that had work and are complete. The durations are those of the last one and of the last reset,
    in ms; None before the first. `resets` counts all of them, `attempts` those in a row without a complete interval; after
    `most_attempts` the next failure is the last. Instants are in ISO 8601 (UTC).
    """

    state: RegionState
    since: str
    trigger: Trigger
    interval: int
    resets: int
    attempts: int
    most_attempts: int
    drain_ms: int | None = None
    checkpoint_ms: int | None = None
    publication_ms: int | None = None
    reset_ms: int | None = None
    failure: Failure | None = None
    ordered: OrderedReset | None = None


class Region:
    """The state machine. The cycle tells it where it is; `RegionCycle` tells it of failures and resets."""

    def __init__(self, settings: RegionSettings, now: Instant) -> None:
        self.settings = settings
        self.state = RegionState.RUNNING
        self.interval = self.resets = self.attempts = 0
        self.failure: Failure | None = None
        self.ordered: OrderedReset | None = None
        self._since = self._moved_at = self._reset_at = now
        self._drained_from = self._checkpointed_from = self._published_from = now
        self._spans: tuple[int, int, int] | None = None
        self._reset_ms: int | None = None

    @property
    def has_failed(self) -> bool:
        return self.state is RegionState.FAILED

    @property
    def is_resetting(self) -> bool:
        return self.state is RegionState.RESETTING

    @property
    def pause_ms(self) -> int:
        """How long to wait before the reset that is due now. It doubles from the second one in a row on."""
        return 0 if self.attempts < 2 else min(1_000 << (self.attempts - 2), _LONGEST_PAUSE_MS)

    def find_present_failure(self) -> Failure | None:
        """Return the last failure, None once an interval was complete after it."""
        return self.failure if self.attempts or self.has_failed else None

    def drain(self, now: Instant) -> None:
        """Nothing more is taken in."""
        self._drained_from = now
        self._enter(RegionState.DRAINING, now)

    def checkpoint(self, now: Instant) -> None:
        """Every unit has finished its turn."""
        self._checkpointed_from = now
        self._enter(RegionState.CHECKPOINTING, now)

    def publish(self, now: Instant) -> None:
        """The region is checkpointed: from now on, sinks get what is pending. After a takeover, an interval may begin here."""
        if self.state is not RegionState.CHECKPOINTING:
            self._drained_from = self._checkpointed_from = now
        self._published_from = now
        self._enter(RegionState.PUBLISHING, now)

    def note_progress(self, now: Instant) -> None:
        """A sink has taken a portion, and more is pending."""
        self._moved_at = now

    def complete(self, now: Instant, *, has_work: bool) -> None:
        """All that was pending has left. An interval without work counts for nothing."""
        if has_work:
            at = (self._drained_from, self._checkpointed_from, self._published_from, now)
            self._spans = (max(0, at[1] - at[0]), max(0, at[2] - at[1]), max(0, at[3] - at[2]))
            self.interval += 1
            self.attempts = 0
        self._enter(RegionState.RUNNING, now)

    def is_stuck(self, now: Instant) -> bool:
        """Whether the interval has made no progress for the drain time-out, although its intake has ended."""
        is_open = self.state in (RegionState.DRAINING, RegionState.CHECKPOINTING, RegionState.PUBLISHING)
        return is_open and now - self._moved_at >= self.settings.drain_timeout_ms

    def is_late(self, now: Instant) -> bool:
        """Whether the reset takes longer than the reset time-out."""
        return self.is_resetting and now - self._reset_at >= self.settings.reset_timeout_ms

    def fail(self, participant: str, reason: str, now: Instant) -> None:
        """A participant has failed: the region is reset, or it has FAILED, if it was reset too often in a row."""
        self.failure = Failure(participant, reason, instant_text(now))
        if self.attempts >= self.settings.max_consecutive_reset_attempts:
            self._enter(RegionState.FAILED, now)
            return
        self.attempts += 1
        self.reset(now)

    def reset(self, now: Instant) -> None:
        """Begin a reset that counts as no failure: a person ordered it, or a server did not answer for too long."""
        self.resets += 1
        self._reset_at = now
        self._enter(RegionState.RESETTING, now)

    def obey(self, order_id: str, by: str, now: Instant, *, is_forced: bool) -> str | None:
        """Begin the reset that a person ordered. Return why it is refused, None if it has begun.

        A region that has FAILED gets all its attempts again.
        """
        refusal = None
        if self.is_resetting:
            refusal = "a reset is under way"
        elif not (self.has_failed or is_forced):
            refusal = f"the region is {self.state}, and has not failed; --force resets it all the same"
        self.ordered = OrderedReset(order_id, by, refusal)
        if refusal is None:
            self.attempts = 0
            self.reset(now)
        return refusal

    def end_reset(self, now: Instant) -> None:
        """The partitions were taken over anew."""
        self._reset_ms = max(0, now - self._reset_at)
        self._enter(RegionState.RUNNING, now)

    def stop(self, now: Instant) -> None:
        self._enter(RegionState.STOPPED, now)

    def report(self, *, is_waiting: bool = False) -> RegionStatus:
        """Return the state for operators. `is_waiting`: a server does not answer at the moment."""
        drain_ms, checkpoint_ms, publication_ms = self._spans or (None, None, None)
        ends = (RegionState.FAILED, RegionState.STOPPED)
        return RegionStatus(
            state=RegionState.WAITING if is_waiting and self.state not in ends else self.state,
            since=instant_text(self._since),
            trigger=self.settings.trigger,
            interval=self.interval,
            resets=self.resets,
            attempts=self.attempts,
            most_attempts=self.settings.max_consecutive_reset_attempts,
            drain_ms=drain_ms,
            checkpoint_ms=checkpoint_ms,
            publication_ms=publication_ms,
            reset_ms=self._reset_ms,
            failure=self.failure,
            ordered=self.ordered,
        )

    def _enter(self, state: RegionState, now: Instant) -> None:
        self.state, self._since, self._moved_at = state, now, now
