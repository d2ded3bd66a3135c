"""Repeat a turn that raised: find the envelopes on which it fails one by one, and make only these dead letters.

If strategy or handler fail, the envelope becomes a dead letter in its place, as after any permanent error, and its successors do
not wait for it. If another step fails, nothing can be counted of the current envelope. It is removed from the arrivals, or from
the unit as it was before the turn, and becomes a dead letter. Then the turn is repeated from its beginning.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from msgspec.structs import force_setattr, replace

from resequencer.batch import WITHOUT_END
from resequencer.call import Answer
from resequencer.clock import Instant
from resequencer.dead_letter import DeadLetterReason
from resequencer.errors import PermanentError, TransientError, our_mistake
from resequencer.event import Event
from resequencer.handler import Handled, Handler, Marks, Profiles
from resequencer.order import OrderResult
from resequencer.record import Record
from resequencer.strategies.registry import ForeignStrategy
from resequencer.turn.decide import change_of, run
from resequencer.turn.orders import Ended, end_waiting_order, report
from resequencer.turn.turn import Turn, TurnContext
from resequencer.unit import Ordered, Undecodable, Unit, Wake


def take_careful_turn(  # noqa: PLR0913 - as `take_turn`
    unit: Unit,
    envelopes: tuple[Event, ...],
    wakes: Collection[Wake],
    now: Instant,
    context: TurnContext,
    budget: int = WITHOUT_END,
    orders: tuple[Ordered, ...] = (),
    answer: Answer | None = None,
) -> Turn:
    """Take the turn like `resequencer.turn.decide.take_turn`, which raised, without the poisonous envelopes.

    If no single envelope is the cause, the turn is taken without its orders and the one that waited, which are refused.

    Raises whatever the turn raises if that fails, too. Then the unit is as before, and cannot go on.
    """

    def whole(turn: Turn, came: Iterable[Event]) -> None:
        run(turn, _each_encoded(turn, came), wakes, orders, answer)

    def without_orders(turn: Turn, came: Iterable[Event]) -> None:
        failed = Ended(OrderResult.REFUSED_IMPOSSIBLE, "the service failed on it: report this with its log")
        for each in orders:
            report(turn, each, failed)
        if executes and unit.waiting_order is not None:
            end_waiting_order(turn, unit.waiting_order, failed)
        run(turn, _each_encoded(turn, came), wakes, answer=answer)

    executes = Wake.ORDER in wakes
    try:
        return without_poison(unit, envelopes, now, context, whole, budget)
    except Exception:
        if not orders and not executes:
            raise
        return without_poison(unit, envelopes, now, context, without_orders, budget)


def without_poison(
    unit: Unit,
    envelopes: tuple[Event, ...],
    now: Instant,
    context: TurnContext,
    course: Callable[[Turn, Iterable[Event]], None],
    budget: int = WITHOUT_END,
) -> Turn:
    """Take a turn by this course, without the envelopes on which it fails, arrived or waiting."""
    before, came, aside, careful = unit.saved(), envelopes, list[Undecodable](), guarded(context)
    while True:
        again = unit.saved()
        turn = Turn(unit, careful, now, budget)
        try:
            _dead_letter_aside(turn, aside)
            course(turn, came)
        except BaseException as error:
            unit.restore(again)
            poison = turn.current
            if poison is None or not isinstance(error, Exception):
                unit.restore(before)
                raise
            undecodable = _undecodable(poison.record, error)
            if any(each.record is poison.record for each in came):
                came = tuple(each for each in came if each.record is not poison.record)
                aside.append(undecodable)
            elif not _take_out(unit, undecodable):
                unit.restore(before)
                raise
        else:
            return turn


def _undecodable(record: Record, error: Exception) -> Undecodable:
    if isinstance(error, PermanentError):  # A user's own code failed, and the text says so.
        return Undecodable(record, error.reason, str(error))
    return Undecodable(record, DeadLetterReason.HANDLER_FAILED, our_mistake(error))


def guarded(context: TurnContext) -> TurnContext:
    """Return the same context, guarded: what strategy or handler raise becomes a `PermanentError`; failing profiles give None.

    A failure then costs only its envelope, for our code as for a user's. `TransientError` of the handler passes unchanged.
    """
    strategy, profiles = context.strategy, context.profiles
    made = replace(
        context,
        strategy=strategy if isinstance(strategy, ForeignStrategy) else ForeignStrategy(strategy, strategy.name),
        handler=_GuardedHandler(context.handler),
        profiles=None if profiles is None else _GuardedProfiles(profiles),
    )
    if context.arrived is None:
        force_setattr(made, "arrived", None)  # The audit switches it off, whatever the strategy has.
    return made


class _GuardedHandler:
    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    def handle(self, envelope: Event, data: Any, marks: Marks, now: Instant) -> Handled:
        try:
            return self._handler.handle(envelope, data, marks, now)
        except (TransientError, PermanentError):
            raise
        except Exception as error:
            raise PermanentError(our_mistake(error)) from error


class _GuardedProfiles:
    def __init__(self, profiles: Profiles) -> None:
        self._profiles = profiles

    def find_lateness_ms(self, entity: str | None, flow: str) -> int | None:
        """Return None after any error: the envelope must not be lost because its wait is unknown."""
        try:
            return self._profiles.find_lateness_ms(entity, flow)
        except Exception:  # noqa: BLE001 - The failed turn before this one has logged the error.
            return None


def _dead_letter_aside(turn: Turn, aside: Iterable[Undecodable]) -> None:
    """Dead-letter the poison among the arrivals. What waited is dead-lettered by the turn itself (`Unit.undecodable`)."""
    for each in aside:
        turn.arrived += 1
        turn.dead_letter(each.record, each.reason, each.error)


def _take_out(unit: Unit, poison: Undecodable) -> bool:
    """Take a poisonous envelope out of what waits in the unit. False if it is not there: it was taken out before."""
    stash = [each for each in unit.stash if each.envelope.record is not poison.record]
    queue = tuple([each for each in unit.queue if each.envelope.record is not poison.record])
    retry = unit.retry
    if retry is not None and retry.entry.envelope.record is poison.record:
        retry = None
    if len(stash) + len(queue) == len(unit.stash) + len(unit.queue) and retry is unit.retry:
        return False
    unit.stash_anew(stash)
    unit.amend(retry=retry, queue=queue, undecodable=(*unit.undecodable, poison))
    return True


def _each_encoded(turn: Turn, envelopes: Iterable[Event]) -> Iterator[Event]:
    """Yield the envelopes, and encode the unit after each, so that an encoding error is attributed to its envelope."""
    for each in envelopes:
        yield each
        turn.current = each
        if turn.is_changed:
            change_of(turn)
