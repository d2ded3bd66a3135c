"""A turn that raised is taken again: the envelopes that it fails on are found one by one and set aside, each alone.

What strategy or handler fail on becomes a dead letter in its place, as all that fails for good: its successors do not wait.
Where a step of our own fails, nothing of the envelope in flight can be counted: it is taken out of what came, or out of the unit
as it was before, becomes a dead letter, and the turn is taken from its beginning once more.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from domain.clock import Instant
from domain.dead_letter import DeadLetterReason
from domain.envelope import DataEnvelope
from domain.errors import our_mistake
from resequencer.decision import decision_of
from resequencer.guarded import guarded
from resequencer.stash import Stash
from resequencer.turn import Turned, take_turn
from resequencer.turn_context import TurnContext
from resequencer.unit import Undecodable, Unit, Wake
from resequencer.working_copy import WITHOUT_END, WorkingCopy

_Led = TypeVar("_Led")


def decide_without_poison(
    unit: Unit,
    envelopes: Iterable[DataEnvelope],
    wakes: Iterable[Wake],
    now: Instant,
    context: TurnContext,
    share: int = WITHOUT_END,
) -> Turned:
    """As `resequencer.turn.decide`, which raised.

    Raises what the turn raises on no envelope in particular: then the unit cannot go on.
    """
    return without_poison(
        unit, envelopes, now, context, lambda copy, came: take_turn(copy, _each_written_down(copy, came), wakes), share
    )


def without_poison(
    unit: Unit,
    envelopes: Iterable[DataEnvelope],
    now: Instant,
    context: TurnContext,
    turn: Callable[[WorkingCopy, Iterable[DataEnvelope]], _Led],
    share: int = WITHOUT_END,
) -> _Led:
    """What `turn` leads to, without what it fails on of these envelopes and of those that wait in the unit."""
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
    """The unit before the turn and what came, without what was set aside already; `aside` is what of that had come."""

    unit: Unit
    came: tuple[DataEnvelope, ...]
    aside: tuple[Undecodable, ...] = ()

    def begin(self, context: TurnContext, now: Instant, share: int) -> WorkingCopy:
        """What had waited is dead-lettered by the copy itself, for the unit says so."""
        copy = WorkingCopy(self.unit, context, now, share)
        for each in self.aside:
            copy.effects.arrive(each.record.origin.offset)
            copy.effects.dead_letter(each.record, each.reason, each.error)
        return copy

    def without(self, poison: DataEnvelope, error: str) -> "_Left | None":
        """None if it is not there: it was set aside, and the turn fails still."""
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
    """What cannot be written down for the storage is found out here, while it is known what led to it."""
    for each in envelopes:
        yield each
        copy.current = each
        decision_of(copy, copy.unit())
