"""Calls of handlers: those that run beside the worker's thread, and the servers that they find unavailable. Pure bookkeeping."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import msgspec

from guardian.metrics import STEP_BOUNDS, Histogram, HistogramReport
from resequencer.batch import UnitKey
from resequencer.call import Answer, Call
from resequencer.clock import Instant
from resequencer.errors import PermanentError, TransientError, our_mistake
from resequencer.handler import Handled
from resequencer.record import Partition
from resequencer.turn.turn import Turn

_MAX_WAITING = 1_000
"""If more units wait for their call to begin, nothing more is read: records come faster than the handler answers."""


class Ended(NamedTuple):
    """A call that has ended, whether or not its answer is still wanted. `at` is in seconds of a steady clock."""

    call: Call
    outcome: Handled | BaseException
    at: float


class Runner(Protocol):
    """Runs calls beside the worker's thread, which alone uses it. No method but `wait` waits."""

    def must_be_alone(self, call: Call) -> bool:
        """Whether a worker may have ended by the call's envelope. Then no other call may run beside it."""
        ...

    def start(self, call: Call) -> None:
        """Begin a call. What is wrong with it is reported by `ended`."""
        ...

    def cancel(self, call: Call) -> None:
        """Have a call end soon, if it can. `ended` reports it when it has really ended."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether a call has ended since `ended` was last called."""
        ...

    def ended(self) -> Sequence[Ended]:
        """Return the calls that have ended since this was last called."""
        ...

    def wait(self, seconds: float) -> None:
        """Wait until a call has ended, for so long at most."""
        ...

    def close(self) -> None: ...


class CallsReport(msgspec.Struct, frozen=True):
    """Counts of the calls under way, of the units whose call has not begun, and of the calls that continue after their time-out.

    `longest` is the key of the call that is under way for the longest time, in milliseconds `longest_ms`. `lingering_units` are
    the units of the calls that continue. `timeouts` counts the calls that timed out since the worker's start, and `durations` are
    those of all calls until their answer or time-out.
    """

    under_way: int = 0
    waiting: int = 0
    lingering: int = 0
    timeouts: int = 0
    longest: UnitKey | None = None
    longest_ms: int = 0
    lingering_units: tuple[UnitKey, ...] = ()
    durations: HistogramReport | None = None


class _Running(NamedTuple):
    call: Call
    began_at: float


class Calls:
    """The calls of a worker: at most `limit` side by side, one for each unit, those that wait the longest first.

    A call that takes longer than `timeout_ms` is answered by a `TransientError` and cancelled. No other call of its unit begins
    before it has really ended.

    `passed` returns seconds that pass, from any beginning. `note` is called with each call that has ended, its error, if any,
    and how many milliseconds it took.
    """

    def __init__(
        self,
        runner: Runner,
        limit: int,
        timeout_ms: int,
        passed: Callable[[], float],
        note: Callable[[Call, Exception | None, int], object] = lambda call, error, took_ms: None,  # noqa: ARG005
    ) -> None:
        self._runner = runner
        self._limit = limit
        self._timeout = timeout_ms / 1_000
        self._passed = passed
        self._note = note
        self._durations = Histogram(STEP_BOUNDS)
        self._waiting: dict[UnitKey, None] = {}
        self._prepared: dict[UnitKey, Call] = {}
        self._running: dict[UnitKey, _Running] = {}
        self._answered: dict[UnitKey, Answer] = {}
        # Calls that are cancelled, or whose partition was lost, and that have not ended yet.
        self._lingering: dict[UnitKey, Call] = {}
        self._alone: Call | None = None
        self._is_silence_needed = False
        self._begins = True
        self.timeouts = 0

    def wait_for(self, key: UnitKey) -> None:
        """Note a unit whose handler must be called, and that is not in memory."""
        self._waiting.setdefault(key)

    def note(self, turn: Turn) -> None:
        """Take over a turn. Its call begins with `begin`, once the turn is committed."""
        key, head = turn.key, turn.called
        if head is None:
            self._waiting.pop(key, None)
            self._prepared.pop(key, None)
            self._answered.pop(key, None)
            self._cancel(key)
            return
        running, answer = self._running.get(key), self._answered.get(key)
        known = running or answer
        if known is not None and known.call.is_of(head.entry.offset, head.attempts):
            return
        self._answered.pop(key, None)
        self._cancel(key)
        self._waiting.setdefault(key)
        if turn.call is not None:
            self._prepared[key] = turn.call

    def wakes(self) -> Sequence[UnitKey]:
        """Return the units to wake, so that their calls can begin."""
        free = self._free
        return [key for key, _ in zip(self._possible(), range(free), strict=False)] if free > 0 else ()

    def begin(self) -> None:
        """Begin the calls that turns have prepared, as far as the limit allows. The others are prepared again when they can."""
        prepared, self._prepared = self._prepared, {}
        for key in self.wakes():
            call = prepared.get(key)
            if call is None:
                continue
            if self._runner.must_be_alone(call):
                if self._running or self._lingering:
                    self._is_silence_needed = True
                    return
                self._alone = call
            del self._waiting[key]
            self._running[key] = _Running(call, self._passed())
            self._runner.start(call)
            if self._alone is not None:
                return

    def take(self, max_bytes: int) -> Mapping[UnitKey, Answer]:
        """Return the answers that have come, at least one, and no more once they have `max_bytes` of output."""
        now = self._passed()
        for call, outcome, at in self._runner.ended():
            self._end(call, outcome, at)
        for running in self._overdue(now):
            self._cancel(running.call.key)
            self._answer_timeout(running)
        taken: dict[UnitKey, Answer] = {}
        while self._answered and max_bytes > 0:
            key = next(iter(self._answered))
            taken[key] = self._answered.pop(key)
            max_bytes -= taken[key].size
        return taken

    @property
    def are_any(self) -> bool:
        """Whether a call is under way or waits."""
        return bool(self._running or self._waiting)

    @property
    def is_behind(self) -> bool:
        """Whether so many units wait for their call that nothing more should be read."""
        return len(self._waiting) > _MAX_WAITING

    def due_in_ms(self) -> int | None:
        """Return when the worker must look at the calls again: at the next time-out at the latest. None if it need not."""
        if self._answered or self._runner.has_ended or self.wakes():
            return 0
        first = next(iter(self._running.values()), None)
        return None if first is None else max(0, round(1_000 * (first.began_at + self._timeout - self._passed())) + 1)

    def drop(self, partition: Partition) -> None:
        """Drop the calls of a partition that this worker no longer owns: their answers count no more."""
        for known in (self._waiting, self._prepared, self._answered):
            for key in [key for key in known if key.partition == partition]:
                del known[key]
        for key in [key for key in self._running if key.partition == partition]:
            self._cancel(key)

    def finish(self, seconds: float) -> bool:
        """Begin no more calls, and wait for an answer for so long at most. Return whether calls are still under way."""
        self._begins = False
        if not self._answered and self._running:
            due_in_ms = self.due_in_ms()
            self._runner.wait(seconds if due_in_ms is None else min(seconds, due_in_ms / 1_000))
        return bool(self._running or self._answered)

    def report(self) -> CallsReport:
        longest = next(iter(self._running.values()), None)
        key, longest_ms = None, 0
        if longest is not None:
            key, longest_ms = longest.call.key, round(1_000 * (self._passed() - longest.began_at))
        counts = (len(self._running), len(self._waiting), len(self._lingering), self.timeouts)
        return CallsReport(*counts, key, longest_ms, tuple(self._lingering), self._durations.report())

    def close(self) -> None:
        self._runner.close()

    @property
    def _free(self) -> int:
        """How many calls may begin: none while answers wait for a cycle that has room for their output."""
        if not self._begins or self._answered or self._alone is not None:
            return 0
        used = len(self._running) + len(self._lingering)
        if self._is_silence_needed and used:
            return 0
        self._is_silence_needed = False
        return self._limit - used

    def _possible(self) -> Iterable[UnitKey]:
        return (key for key in self._waiting if key not in self._lingering)

    def _overdue(self, now: float) -> Sequence[_Running]:
        overdue = []
        for running in self._running.values():
            if now - running.began_at <= self._timeout:
                break
            overdue.append(running)
        return overdue

    def _end(self, call: Call, outcome: Handled | BaseException, at: float) -> None:
        key = call.key
        if self._alone is call:
            self._alone = None
        if self._lingering.get(key) is call:
            del self._lingering[key]
        running = self._running.get(key)
        if running is None or running.call is not call:
            return
        del self._running[key]
        if at - running.began_at > self._timeout:
            self._answer_timeout(running)
            return
        if not isinstance(outcome, Handled | TransientError | PermanentError):
            outcome = PermanentError(our_mistake(outcome))
        self._answer(running, outcome, at)

    def _answer_timeout(self, running: _Running) -> None:
        self.timeouts += 1
        error = TransientError(f"the handler did not answer within {self._timeout:g} s (processing-timeout)")
        self._answer(running, error, self._passed())

    def _answer(self, running: _Running, outcome: Handled | Exception, at: float) -> None:
        took_ms = round(1_000 * (at - running.began_at))
        self._durations.observe(took_ms)
        self._note(running.call, outcome if isinstance(outcome, Exception) else None, took_ms)
        self._answered[running.call.key] = Answer(running.call, outcome)

    def _cancel(self, key: UnitKey) -> None:
        """Give up a call that is under way, if there is one."""
        running = self._running.pop(key, None)
        if running is not None:
            self._lingering[key] = running.call
            self._runner.cancel(running.call)


_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = 1_000, 30_000


@dataclass(slots=True)
class _Unavailable:
    """One unavailable server.

    `waiting` counts the units that wait for it. `due` are the units whose own back-off has ended, the longest due first.
    `tried` are the units of the present wave without a result yet; the wave has `taken` units, of which `failed` failed.
    """

    waiting: int = 0
    due: dict[UnitKey, None] = field(default_factory=dict)
    tried: set[UnitKey] = field(default_factory=set)
    taken: int = 0
    failed: int = 0
    at_once: int = 1
    pause_ms: int = 0
    next_at: Instant = 0

    def is_open(self, now: Instant) -> bool:
        """Whether the next wave may begin. A clock that was set back does not prolong the pause."""
        return bool(self.due) and not self.tried and not 0 < self.next_at - now <= self.pause_ms

    def end_try(self, now: Instant) -> None:
        if self.failed == self.taken:
            self.at_once, self.pause_ms = 1, min(max(2 * self.pause_ms, _FIRST_PAUSE_MS), _LONGEST_PAUSE_MS)
            self.next_at = now + self.pause_ms
        else:
            self.at_once = 2 * self.at_once if 2 * self.failed <= self.taken else max(1, self.at_once // 2)
            self.pause_ms = self.next_at = 0


class Dependencies:
    """The unavailable servers. A server is known from the first unit that waits for it to the last.

    At first one unit tries, after pauses that double. While most tries succeed, twice as many units try next. So a million
    waiting units do not overload a server that has just recovered, and their failing calls do not keep the worker from reading.
    """

    def __init__(self) -> None:
        self._unavailable: dict[str, _Unavailable] = {}
        self._due_for: dict[UnitKey, str] = {}
        self._tried_for: dict[UnitKey, str] = {}

    @property
    def waiting(self) -> Mapping[str, int]:
        """How many units wait for each server."""
        return {name: unavailable.waiting for name, unavailable in self._unavailable.items()}

    @property
    def next_at(self) -> Instant | None:
        """The earliest instant at which a unit may try."""
        return min((each.next_at for each in self._unavailable.values() if each.due and not each.tried), default=None)

    def remember(self, before: str | None, after: str | None) -> None:
        """Count a unit that waited for the server `before` and now waits for the server `after`; None is no server."""
        if before == after:
            return
        if after is not None:
            self._unavailable.setdefault(after, _Unavailable()).waiting += 1
        if before is not None:
            unavailable = self._unavailable[before]
            unavailable.waiting -= 1
            if not unavailable.waiting:
                del self._unavailable[before]

    def find_tried(self, key: UnitKey) -> str | None:
        """Return the server that the unit tries now; None if it tries none."""
        return self._tried_for.get(key)

    def queue(self, key: UnitKey, name: str) -> None:
        """Queue a unit whose own back-off has ended."""
        self._unavailable[name].due[key] = None
        self._due_for[key] = name

    def take(self, now: Instant, limit: int) -> Iterator[UnitKey]:
        """Yield the units that may try now, at most `limit` for each server."""
        for name, unavailable in self._unavailable.items():
            if not unavailable.is_open(now):
                continue
            unavailable.at_once = min(unavailable.at_once, limit)
            wave = [key for key, _ in zip(unavailable.due, range(unavailable.at_once), strict=False)]
            unavailable.tried, unavailable.taken, unavailable.failed = set(wave), len(wave), 0
            for key in wave:
                del unavailable.due[key], self._due_for[key]
                self._tried_for[key] = name
                yield key

    def note(self, key: UnitKey, name: str | None, now: Instant) -> None:
        """Note that a unit took a turn after which it waits for the server `name`, None for no server."""
        if self._due_for.get(key, name) != name:
            self._forget_due(key)
        tried = self._tried_for.pop(key, None)
        unavailable = None if tried is None else self._unavailable.get(tried)
        if unavailable is not None:
            unavailable.tried.discard(key)
            unavailable.failed += name == tried
            if not unavailable.tried:
                unavailable.end_try(now)

    def put_back(self, key: UnitKey, now: Instant) -> None:
        """Note that a unit of the wave did not call the server. It does not count as a try."""
        unavailable = self._unavailable.get(self._tried_for.pop(key, ""))
        if unavailable is not None:
            unavailable.tried.discard(key)
            unavailable.taken -= 1
            if not unavailable.tried and unavailable.taken:
                unavailable.end_try(now)

    def drop(self, partition: Partition) -> None:
        """Forget a partition's due and trying units. Its waiting units are removed one by one with `remember`."""
        for key in [each for each in self._due_for if each.partition == partition]:
            self._forget_due(key)
        for key in [each for each in self._tried_for if each.partition == partition]:
            unavailable = self._unavailable.get(self._tried_for.pop(key))
            if unavailable is not None:
                unavailable.tried.discard(key)

    def _forget_due(self, key: UnitKey) -> None:
        unavailable = self._unavailable.get(self._due_for.pop(key))
        if unavailable is not None:
            unavailable.due.pop(key, None)
