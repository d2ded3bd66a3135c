"""The state of a region: one worker's source, units and sinks, which drain, commit and reset together.

Pure: instants are handed in. The picture is docs/region.svg. A cycle is an interval of the region. The cycle tells each step,
and `guardian/resets.py` tells what failed.
"""

from collections.abc import Callable
from enum import StrEnum

import msgspec

from resequencer.clock import Instant
from resequencer.errors import ResequencerError

STEADY_MS = 60_000
"""A region without work counts as one that has completed an interval when it has run for so long without a failure."""

STOPPING_MS = 25_000
"""The longest time-out of a region that stops. Its process is ended 30 s after it was asked to stop."""


class RegionState(StrEnum):
    """The states of a region. `PUBLISHING`: the region is checkpointed, so the sinks send and the source acknowledges.

    The state `WAITING` is shown while a server does not answer, in whichever step that is.
    """

    RUNNING = "running"
    DRAINING = "draining"
    CHECKPOINTING = "checkpointing"
    PUBLISHING = "publishing"
    RESETTING = "resetting"
    WAITING = "waiting for a server"
    FAILED = "failed"
    STOPPED = "stopped"


class RegionLimits(msgspec.Struct, frozen=True):
    """After `max_resets` resets in a row without a completed interval the region fails.

    `drain_ms` is how long the turns of one interval may take. `refused_ms` is how long participants that answer may refuse
    publications or takeovers.
    """

    max_resets: int = 5
    drain_ms: int = 180_000
    refused_ms: int = 180_000


class MustReset(ResequencerError):
    """The region cannot continue without a reset. `are_units` says that its units are the cause, and no participant."""

    def __init__(self, problem: str, *, are_units: bool = False) -> None:
        super().__init__(problem)
        self.are_units = are_units


class RegionFailure(msgspec.Struct, frozen=True):
    """Which participant failed last, why and when."""

    participant: str
    reason: str
    at: Instant


class IntervalTimes(msgspec.Struct, frozen=True):
    """How long the steps of the last interval with work took, in milliseconds. None before the first one."""

    drain_ms: int | None = None
    checkpoint_ms: int | None = None
    publication_ms: int | None = None


class Region:
    """Counts and decides; it does nothing itself.

    `sequence` counts the intervals with work that were completed, `resets` all resets of this process, `attempts` the resets in a
    row since the last completed interval. `reset_ms` is how long the last reset took.
    """

    def __init__(self, limits: RegionLimits) -> None:
        self.limits = limits
        self.state = RegionState.RUNNING
        self.sequence = 0
        self.times = IntervalTimes()
        self.resets = 0
        self.attempts = 0
        self.reset_ms: int | None = None
        self.failure: RegionFailure | None = None
        self._reset_at: Instant | None = None
        self._refused_since: Instant | None = None
        self._refused_at: Instant | None = None
        self._has_work = False

    def shown(self, *, is_waiting: bool) -> RegionState:
        """Return the state for operators, while a server does not answer or all do."""
        is_over = self.state in (RegionState.FAILED, RegionState.STOPPED)
        return RegionState.WAITING if is_waiting and not is_over else self.state

    # Intervals

    def enter(self, step: RegionState) -> None:
        """Begin this step of an interval."""
        self.state = step

    def check_drain(self, took_ms: int, count: int, is_stopping: Callable[[], bool]) -> None:
        """Check how long the `count` turns of an interval took. Called before anything of it is committed.

        One turn may take as long as it takes: it would be the same again after a reset.

        Raises:
            MustReset: It took longer than the drain may take.
        """
        max_ms = _most(self.limits.drain_ms, took_ms, is_stopping)
        if took_ms > max_ms and count > 1:
            raise MustReset(
                f"{count} turns took {took_ms / 1_000:.0f} s, and drain-timeout is {max_ms / 1_000:g} s: nothing "
                "of this interval was committed. Find out what was slow; or lower trigger-count, or raise drain-timeout",
                are_units=True,
            )

    def note_committed(self) -> None:
        """Note that something was committed: the interval counts once it is published."""
        self._has_work = True

    def note_times(self, times: IntervalTimes) -> None:
        self.times = times

    def complete(self, now: Instant) -> None:
        """End an interval: nothing is owed. If a participant has just refused something, that may be because it was dropped."""
        self.state = RegionState.RUNNING
        if _is_recent(self._refused_at, now):
            return
        if self._has_work:
            self.sequence += 1
            self.attempts, self._has_work = 0, False
        elif self.attempts and not _is_recent(self._reset_at, now):
            self.attempts = 0

    def note_refused(self, reason: str, now: Instant, is_stopping: Callable[[], bool]) -> None:
        """Note that a participant refused a publication or a takeover although it answers.

        Raises:
            MustReset: It has done so for longer than a reset may take.
        """
        if self._refused_since is None or now < self._refused_since or not _is_recent(self._refused_at, now):
            self._refused_since = now
        self._refused_at = now
        took_ms = now - self._refused_since
        max_ms = _most(self.limits.refused_ms, took_ms, is_stopping)
        if took_ms > max_ms:
            raise MustReset(f"refused for longer than {max_ms / 1_000:g} s (reset-timeout): {reason}")

    def note_accepted(self) -> None:
        """Note that a publication has succeeded, and that nothing is refused."""
        self._refused_since = self._refused_at = None

    # Resets

    def fail(self, participant: str, reason: str, now: Instant) -> None:
        """Begin a reset because of a failure, or give up: then the state is `FAILED`."""
        self.failure = RegionFailure(participant, reason, now)
        self._begin_again(now)
        if self.attempts >= self.limits.max_resets:
            self.state = RegionState.FAILED
            return
        self.attempts += 1
        self._begin_reset()

    def reset_by_order(self, now: Instant) -> None:
        """Begin a reset that an operator ordered. The resets in a row are counted from the beginning."""
        self.attempts = 0
        self._begin_again(now)
        self._begin_reset()

    def end_reset(self, took_ms: int, now: Instant) -> None:
        """End a reset: what is assigned was taken over, or its takeover is postponed."""
        self.reset_ms, self._reset_at, self.state = max(0, took_ms), now, RegionState.RUNNING

    def stop(self) -> None:
        self.state = RegionState.STOPPED

    def _begin_again(self, now: Instant) -> None:
        self._has_work, self._refused_since, self._refused_at, self._reset_at = False, None, None, now

    def _begin_reset(self) -> None:
        self.resets += 1
        self.state = RegionState.RESETTING


def _is_recent(instant: Instant | None, now: Instant) -> bool:
    return instant is not None and 0 <= now - instant < STEADY_MS


def _most(limit_ms: int, took_ms: int, is_stopping: Callable[[], bool]) -> int:
    """Return the limit; a lower one while the worker stops. That is asked only where it matters."""
    return STOPPING_MS if took_ms > STOPPING_MS and limit_ms > STOPPING_MS and is_stopping() else limit_ms
