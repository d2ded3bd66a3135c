"""The cycle's interface to the units of a worker: their registry, and the actor system with its guardian."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec
from msgspec.structs import replace
from thespian.actors import PoisonMessage

from guardian.actor_system import make_actor_system
from guardian.calls import Calls, CallsReport
from guardian.guardian_actor import Escalated, Failure, Guardian, Stop, TakeTurns
from guardian.headers import REQUEUED_MARK
from guardian.partition_orders import Pauses
from guardian.unit_registry import AT_ONCE, UnitRegistry, UnitRegistrySettings
from resequencer.actor import Resequencer
from resequencer.batch import Batch, TakeTurn, TurnsTaken, UnitKey
from resequencer.call import Answer
from resequencer.clock import Instant
from resequencer.errors import ResequencerError, words_of
from resequencer.event import Event
from resequencer.record import Partition
from resequencer.storage_port import Snapshot, WaitKind, Waits
from resequencer.turn.turn import Turn, TurnContext
from resequencer.unit import Ordered, Wake
from resequencer.unit_codec import Decode, UnitCodec

_log = logging.getLogger("resequencer.guardian")
_Answer = TypeVar("_Answer")
_Arguments = ParamSpec("_Arguments")


class ActorsFailed(ResequencerError):
    """The guardian itself failed; the worker ends without committing (supervision.py)."""


class Prepared(msgspec.Struct, frozen=True):
    """The units whose snapshots the next `decide` needs: units of the poll and units to wake that have no actor.

    `stopped` are the units whose actors were stopped.
    """

    unknown: tuple[UnitKey, ...]
    stopped: tuple[UnitKey, ...] = ()


class Decided(msgspec.Struct, frozen=True):
    """The turn of each unit that took one, and the latest instant for the next poll.

    `is_blocked` is set when the remainders are larger than the output of one cycle. Then the cycle should read as little as
    possible until they are worked off.
    """

    turns: Sequence[Turn]
    next_wake_at: Instant | None
    is_blocked: bool = False


class UnitsReport(msgspec.Struct, frozen=True):
    """Counts of units with an actor, units in which something waits, stashed envelopes and bytes; and the longest waits.

    `backlogged` counts the deadlines that have passed but wait for their backlog to be read. `unavailable` maps each server that
    handlers cannot reach to the number of units that wait for it. `held` counts the units that an order holds.
    """

    active: int
    waiting: int
    stashed: int
    stashed_bytes: int
    backlogged: int
    oldest: tuple[tuple[UnitKey, Waits], ...]
    unavailable: Mapping[str, int] = {}
    held: int = 0


def _whole(
    call: Callable[Concatenate["ActorGateway", _Arguments], _Answer],
) -> Callable[Concatenate["ActorGateway", _Arguments], _Answer]:
    """Make a mistake of ours in the registry a failure of the guardian. Each later call fails, too: it may be half changed."""

    @wraps(call)
    def guarded(self: "ActorGateway", /, *arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Answer:
        if self._broken_by is not None:
            raise self._broken_by
        try:
            return call(self, *arguments, **named)
        except Escalated:
            raise
        except ActorsFailed as error:
            self._broken_by = error
            raise
        except Exception as error:
            _log.exception("the units' registry failed")
            self._broken_by = ActorsFailed(f"{Failure.GUARDIAN}: {words_of(error)}")
            raise self._broken_by from error

    return guarded


class ActorGateway:
    """The units of a worker, each with an actor while it is in memory. Everything runs in the calling thread.

    A poll is `prepare`, the load of the units that are unknown, and `decide`. Every call raises `ActorsFailed` once one has.
    """

    _broken_by: ActorsFailed | None = None

    def __init__(self, context: TurnContext, decode: Decode, settings: UnitRegistrySettings, calls: Calls | None = None) -> None:
        """With `calls` the handler waits."""
        codec = UnitCodec(context.strategy, decode, context.data_handler, context.strategy_key, context.events)
        context = replace(context, stores_turns=settings.can_reload, waits=calls is not None, requeued_mark=REQUEUED_MARK)
        resequencer = type("WorkerResequencer", (Resequencer,), {"context": context, "codec": codec})
        self._budget_bytes = settings.budget_bytes
        self._calls = calls
        self._registry = UnitRegistry(settings)
        self._system = make_actor_system()
        self._guardian = self._system.createActor(type("WorkerGuardian", (Guardian,), {"resequencer": resequencer}))
        self._wakes: Mapping[UnitKey, Wake] = {}
        self._unavailable: frozenset[str] = frozenset()

    @_whole
    def arm(self, partition: Partition, waiting: Iterable[tuple[str, Waits]]) -> None:
        """Take over the waiting units of a partition. A unit is loaded only when it is woken or gets an envelope."""
        called: list[tuple[Instant, str]] = []
        for unit, waits in waiting:
            if waits.kind is WaitKind.CALL:
                called.append((waits.since, unit))
                if self._calls is None:  # A call that a handler of before did not answer is an attempt of one that does not wait.
                    waits = replace(waits, kind=WaitKind.RETRY)
            self._registry.arm(UnitKey(partition, unit), waits)
        if self._calls is not None:
            for _, unit in sorted(called):
                self._calls.wait_for(UnitKey(partition, unit))

    @_whole
    def drop(self, partition: Partition) -> None:
        """Drop the units of a partition that is no longer assigned from memory, without deciding anything."""
        self._stop(self._registry.drop(partition))
        if self._calls is not None:
            self._calls.drop(partition)
        self._wakes = {key: wake for key, wake in self._wakes.items() if key.partition != partition}

    @_whole
    def note_pauses(self, partition: Partition, pauses: Pauses) -> None:
        """Take over the pauses of a partition. While it is paused, its deadlines rest; afterwards they are later by that time."""
        self._registry.note_pauses(partition, pauses)

    @_whole
    def prepare(
        self,
        polled_at: Instant,
        units: Collection[UnitKey],
        read_to: Mapping[Partition, int],
        ends: Mapping[Partition, int],
        limit: int = AT_ONCE,
    ) -> Prepared:
        """Prepare for a poll that began at `polled_at` and brought something for these units. What was decided is committed.

        `read_to` is the offset up to which each partition has been read, including this poll. `ends` is where its log ended when
        the poll began. About `limit` units are woken at once. Actors of idle units are stopped.
        """
        to_call = () if self._calls is None else self._calls.wakes()
        dues = self._registry.dues(polled_at, read_to, ends, limit, frozenset(units), to_call)
        for key in dues.stops:
            self._registry.deactivate(key)
        self._stop(dues.stops)
        self._wakes = dues.wakes
        unknown = tuple([key for key in dict.fromkeys((*units, *dues.wakes)) if not self._registry.is_active(key)])
        return Prepared(unknown, dues.stops)

    @_whole
    def decide(
        self,
        now: Instant,
        arrivals: Mapping[UnitKey, tuple[Event, ...]],
        snapshots: Mapping[UnitKey, Snapshot],
        orders: Mapping[UnitKey, tuple[Ordered, ...]] = {},
        answers: Mapping[UnitKey, Answer] = {},
    ) -> Decided:
        """Decide about the arrivals, each unit's envelopes in order of arrival, the orders, the answers, and the units to wake.

        The turns are those of remainders, of units with answers, of units to wake, of units with new envelopes, then of units
        with orders. They run in this order, one after the other. The output budget of a turn depends on the turns before it.

        Raises:
            Escalated: A unit failed, and the worker must end.
            ActorsFailed: The guardian failed.
        """
        wakes, self._wakes = self._wakes, {}
        keys: Iterable[UnitKey] = arrivals
        if wakes or orders or answers:
            left_over = [key for key, wake in wakes.items() if wake is Wake.REMAINDER]
            keys = dict.fromkeys((*left_over, *answers, *wakes, *arrivals, *orders))
        registry, batch = self._registry, Batch(now, self._budget_bytes)
        turns: list[TakeTurn] = []
        for key in keys:
            registry.activate(key)
            woken = (wakes[key],) if key in wakes else ()
            came, ordered, snapshot = arrivals.get(key, ()), orders.get(key, ()), snapshots.get(key)
            turns.append(TakeTurn(key, came, woken, batch, snapshot, orders=ordered, answer=answers.get(key)))
        batch.out = len(turns)
        if turns:
            self._ask(TakeTurns(batch, turns), TurnsTaken)
        for turn in batch.turns:
            registry.note(turn, now)
        if self._calls is not None:
            for turn in batch.turns:
                self._calls.note(turn)
        for key in batch.postponed:
            registry.postpone(key, now)
        self._tell_of_servers()
        return Decided(batch.turns, registry.next_wake_at, registry.is_blocked)

    @_whole
    def take_answers(self) -> Mapping[UnitKey, Answer]:
        """Return the answers of calls, as many as one cycle has room for. `decide` must get those of partitions still owned."""
        return {} if self._calls is None else self._calls.take(self._budget_bytes)

    @_whole
    def begin_calls(self) -> None:
        """Begin calls. All turns that have prepared one are committed, or their partitions are dropped."""
        if self._calls is not None:
            self._calls.begin()

    @_whole
    def calls_due_in_ms(self) -> int | None:
        """Return after how many milliseconds a call needs the next cycle; None if none does."""
        return None if self._calls is None else self._calls.due_in_ms()

    @property
    def is_behind(self) -> bool:
        """Whether nothing more should be read: so many units wait for their handler, or memory is full and any does.

        Calls end in any case, so what comes next can wait where it is.
        """
        calls = self._calls
        return calls is not None and (calls.is_behind or (calls.are_any and self._registry.is_full))

    @property
    def crowded(self) -> Collection[Partition]:
        """The partitions from which nothing more should be read, because a unit's stash is full while its handler is called."""
        return () if self._calls is None else self._registry.crowded

    @_whole
    def finish_calls(self, seconds: float) -> bool:
        """Begin no more calls, and wait for an answer. Return whether calls are still under way."""
        return self._calls is not None and self._calls.finish(seconds)

    def report_calls(self) -> CallsReport | None:
        """Report the calls, for operators; None if the handler does not wait."""
        return None if self._calls is None else self._calls.report()

    @_whole
    def active(self) -> Mapping[Partition, Collection[str]]:
        """Return the units with an actor, by partition. The storage must not expire them."""
        return self._registry.active_units()

    @_whole
    def report_units(self, oldest: int = 10) -> UnitsReport:
        """Report what waits, for operators, with the `oldest` longest waits."""
        each = self._registry
        waits = tuple(each.longest(oldest))
        counts = (each.active, len(each.waits), each.stashed, each.stashed_bytes, each.backlogged)
        return UnitsReport(*counts, waits, each.unavailable, each.held)

    def close(self) -> None:
        if self._calls is not None:
            self._calls.close()
        self._system.shutdown()

    def _stop(self, units: Collection[UnitKey]) -> None:
        if units:
            self._ask(Stop(units), Stop)

    def _ask(self, message: msgspec.Struct, expected: type[_Answer]) -> _Answer:
        answer: Any = self._system.ask(self._guardian, message)
        if isinstance(answer, expected):
            return answer
        if isinstance(answer, Escalated):
            raise answer
        details = answer.details if isinstance(answer, PoisonMessage) else f"answered {answer!r}"
        raise ActorsFailed(f"{Failure.GUARDIAN}: {type(message).__name__}: {details}")

    def _tell_of_servers(self) -> None:
        """Log once when the first unit begins to wait for a server, and once when no unit waits for it any more."""
        before, self._unavailable = self._unavailable, frozenset(self._registry.unavailable)
        for name in sorted(self._unavailable - before):
            _log.warning("%s is unavailable: units that need it wait and are retried until it answers", name)
        for name in sorted(before - self._unavailable):
            _log.warning("%s: no unit waits for it any more", name)
