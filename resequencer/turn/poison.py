"""Repeat a turn that raised: find the envelopes on which it fails one by one, and make only these dead letters.

If strategy or handler fail, the envelope becomes a dead letter in its place, as after any permanent error, and its successors do
not wait for it. If another step fails, nothing can be counted of the current envelope. It is removed from the arrivals, or from
the unit as it was before the turn, and becomes a dead letter. Then the turn is repeated from its beginning.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from domain.clock import Instant
from domain.dead_letter import DeadLetterReason
from domain.envelope import DataEnvelope
from domain.errors import our_mistake
from domain.order import OrderResult
from resequencer.stash import Stash
from resequencer.turn.context import TurnContext
from resequencer.turn.decision import decision_of
from resequencer.turn.guarded_context import guarded
from resequencer.turn.orders import Ended, report
from resequencer.turn.turn import Turned, take_turn
from resequencer.turn.working_copy import WITHOUT_END, WorkingCopy
from resequencer.unit import Ordered, Undecodable, Unit, Wake

_Led = TypeVar("_Led")


def decide_without_poison(
    unit: Unit,
    envelopes: Iterable[DataEnvelope],
    wakes: Iterable[Wake],
    now: Instant,
    context: TurnContext,
    share: int = WITHOUT_END,
    orders: tuple[Ordered, ...] = (),
) -> Turned:
    """Decide like `resequencer.turn.turn.decide`, which raised, without the poisonous envelopes.

    If no single envelope is the cause, the turn is taken without its orders, which are refused.

    Raises whatever the turn raises if that fails, too. Then the unit cannot go on.
    """
    came = tuple(envelopes)

    def turn(copy: WorkingCopy, left: Iterable[DataEnvelope]) -> Turned:
        return take_turn(copy, _each_written_down(copy, left), wakes, orders)

    def turn_without_orders(copy: WorkingCopy, left: Iterable[DataEnvelope]) -> Turned:
        for each in orders:
            report(copy, each, Ended(OrderResult.REFUSED_IMPOSSIBLE, "the service failed on it: report this with its log"))
        return take_turn(copy, _each_written_down(copy, left), wakes)

    try:
        return without_poison(unit, came, now, context, turn, share)
    except Exception:
        if not orders:
            raise
        return without_poison(unit, came, now, context, turn_without_orders, share)


def without_poison(
    unit: Unit,
    envelopes: Iterable[DataEnvelope],
    now: Instant,
    context: TurnContext,
    turn: Callable[[WorkingCopy, Iterable[DataEnvelope]], _Led],
    share: int = WITHOUT_END,
) -> _Led:
    """Return the result of `turn` without the envelopes on which it fails, arrived or waiting."""
    left, careful = _Left(unit, tuple(envelopes)), guarded(context)
    while True:
        copy = left.begin(careful, now, share)
        try:
            return turn(copy, left.came)
        except Exception as error:
            rest = None if copy.current is None else left.without(copy.current, our_mistake(error))
            if rest is None:
                raise
            left = rest


class _Left(NamedTuple):
    """The unit before the turn and the arrivals, without the poison found so far. `aside` is the poison among the arrivals."""

    unit: Unit
    came: tuple[DataEnvelope, ...]
    aside: tuple[Undecodable, ...] = ()

    def begin(self, context: TurnContext, now: Instant, share: int) -> WorkingCopy:
        """Return a working copy with dead letters for `aside`. The copy dead-letters poison that waited (`unit.undecodable`)."""
        copy = WorkingCopy(self.unit, context, now, share)
        for each in self.aside:
            copy.effects.arrive(each.record.origin.offset)
            copy.effects.dead_letter(each.record, each.reason, each.error)
        return copy

    def without(self, poison: DataEnvelope, error: str) -> "_Left | None":
        """Return the rest without this envelope. None if it was removed before: then the turn fails for another reason."""
        undecodable = Undecodable(poison.record, DeadLetterReason.HANDLER_FAILED, error)
        rest = tuple(each for each in self.came if each is not poison)
        if len(rest) < len(self.came):
            return _Left(self.unit, rest, (*self.aside, undecodable))
        unit = _take_out(self.unit, poison)
        return None if unit is None else _Left(replace(unit, undecodable=(*unit.undecodable, undecodable)), self.came, self.aside)


def _take_out(unit: Unit, poison: DataEnvelope) -> Unit | None:
    if unit.retry is not None and unit.retry.entry.envelope is poison:
        return replace(unit, retry=None)
    stash = [each for each in unit.stash if each.envelope is not poison]
    queue = [each for each in unit.queue if each.envelope is not poison]
    if len(stash) + len(queue) == len(unit.stash) + len(unit.queue):
        return None
    return replace(unit, stash=reduce(Stash.add, stash, Stash()), queue=reduce(Stash.add, queue, Stash()))


def _each_written_down(copy: WorkingCopy, envelopes: Iterable[DataEnvelope]) -> Iterator[DataEnvelope]:
    """Yield the envelopes, and encode the unit after each, so that an encoding error is attributed to its envelope."""
    for each in envelopes:
        yield each
        copy.current = each
        decision_of(copy, copy.unit())
