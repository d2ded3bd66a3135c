"""The rules of a worker's exit: when a call has run too long, what caused the exit, when the worker starts again. Pure."""

import signal
from collections import deque
from collections.abc import Iterable, Sequence

from notification_service.status.report import ExitCause
from notification_service.supervision.in_flight_memory import InFlightEnvelope
from notification_service.supervision.suspects import EXITS_OF_ONE, REMEDY, Suspect
from resequencer.clock import Instant
from resequencer.dead_letter import DeadLetterReason

_FEWEST_MS, _MAX_MS = 20, 1_000
_LOOKS = 10
"""How many looks there are within a limit, at least."""


class CallWatch:
    """Counts the time between two looks that found the same call.

    A pause of the watcher itself (a suspended machine) counts as two intervals at most: the worker could do nothing meanwhile.
    """

    def __init__(self, limit_ms: int) -> None:
        self._limit_ms = limit_ms
        self.interval_ms = min(max(limit_ms // _LOOKS, _FEWEST_MS), _MAX_MS)
        """How often to look, in milliseconds."""
        self.elapsed_ms = 0
        """How long the call was seen to run, in milliseconds."""
        self._call: int | None = None
        self._looked_at = 0

    @property
    def is_over(self) -> bool:
        """Whether the call has run for longer than the limit."""
        return self.elapsed_ms > self._limit_ms

    @property
    def is_stuck(self) -> bool:
        """Whether the call has run for half of the limit."""
        return 2 * self.elapsed_ms > self._limit_ms

    def look(self, call: int | None, now: int) -> None:
        """Record the call that runs now; None if none does."""
        since, self._looked_at = now - self._looked_at, now
        if call is None or call != self._call:
            self._call, self.elapsed_ms = call, 0
        else:
            self.elapsed_ms += min(since, 2 * self.interval_ms)

    def forgive(self) -> None:
        """Start to count again from 0."""
        self.elapsed_ms = 0


_OF_ITS_OWN = frozenset(
    {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS}
)
"""Signals that a process causes itself. SIGKILL and SIGTERM come from outside: from a person, or from a kernel without memory."""

_NAMED = 5
"""How many envelopes a log line names."""

_REASON = DeadLetterReason.ENDED_ITS_WORKER.value
_ORDERED_TWICE = frozenset({128 + signal.SIGTERM, 128 + signal.SIGINT})
"""The exit codes of a worker that got a second signal."""

_ORDERED_TO_END = _ORDERED_TWICE | {0, -signal.SIGTERM, -signal.SIGINT}
"""A worker drains and ends with 0 only when it is ordered to; a signal ends it if it does not listen to signals yet."""


def cause_of(code: int, *, is_hung: bool, has_poison: bool) -> ExitCause:
    """Return the cause of an exit with this code (negative for a signal)."""
    if is_hung:
        return ExitCause.HUNG
    if has_poison:
        return ExitCause.RECORD
    if was_ordered(code):
        return ExitCause.ORDERED
    return ExitCause.SIGNAL if code < 0 else ExitCause.EXIT_CODE


def was_ordered(code: int) -> bool:
    """Return whether a worker that ends with this code was ordered to end, once or twice: by the console or by a person."""
    return code in _ORDERED_TO_END


def is_own_doing(code: int) -> bool:
    """Return whether a worker caused its own end: with an exit code, or by a signal (negative) that its own code raises."""
    return -code in _OF_ITS_OWN if code < 0 else code not in _ORDERED_TWICE


def names_of(in_flight: Sequence[InFlightEnvelope]) -> str:
    """Return the envelopes for a log line, the first few by name."""
    more = len(in_flight) - _NAMED
    names = ", ".join(map(str, in_flight[:_NAMED]))
    return names if more <= 0 else f"{names} and {more} more"


def blame_none(in_flight: Sequence[InFlightEnvelope]) -> str:
    """Return the text that follows the description of an exit with several envelopes in flight, which counts for none."""
    reason = f"one of these {len(in_flight)} ended it: the exit counts for none, and each is called again alone"
    return f"while {names_of(in_flight)} ({reason})"


def blame(in_flight: InFlightEnvelope, suspect: Suspect | None) -> str:
    """Return the text that follows the description of the exit; `suspect` is None if the exit could not be counted."""
    while_in_flight = f"while {in_flight}"
    if suspect is None:
        return while_in_flight
    if not suspect.is_condemned:
        return (
            f"{while_in_flight} (exit {suspect.exits} of {EXITS_OF_ONE} on this record; after the last it becomes a dead letter)"
        )
    if suspect.exits == EXITS_OF_ONE:
        how = f"exit {EXITS_OF_ONE} of {EXITS_OF_ONE} on this record"
        return f"{while_in_flight} ({how}): the record becomes a dead letter {_REASON}; {REMEDY}"
    return (
        f"{while_in_flight} (exit {suspect.exits} on this record, a dead letter since exit {EXITS_OF_ONE}: report this as a bug)"
    )


MAX_EXITS = 10
WITHIN_MS = 60_000


class RestartPolicy:
    """The pause before a restart doubles while exits follow each other; after too many within a minute, no restart follows.

    It is `first_pause_ms` at first, and ten times as much at most.
    """

    def __init__(self, first_pause_ms: int) -> None:
        self._first_pause_ms = first_pause_ms
        self._exits: deque[Instant] = deque(maxlen=MAX_EXITS)
        self._explained: deque[Instant] = deque(maxlen=MAX_EXITS)

    def note_exit(self, now: Instant) -> int | None:
        """Return the milliseconds to wait before the next start; None if no start follows."""
        self._exits.append(now)
        return None if _recent(self._exits, now) >= MAX_EXITS else self._pause_ms(now)

    def note_explained(self, now: Instant) -> int:
        """Return the milliseconds to wait after an exit that an envelope is counted for, or that was ordered.

        It lengthens the pause and ends no slot.
        """
        self._explained.append(now)
        return self._pause_ms(now)

    def _pause_ms(self, now: Instant) -> int:
        recent = _recent(self._exits, now) + _recent(self._explained, now)
        return min(self._first_pause_ms << (max(recent, 1) - 1), 10 * self._first_pause_ms)


def _recent(exits: Iterable[Instant], now: Instant) -> int:
    return sum(0 <= now - ended_at < WITHIN_MS for ended_at in exits)
