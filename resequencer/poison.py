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
from resequencer.turn_context import Rules
from resequencer.unit import Spoiled, Unit, Wake
from resequencer.working_copy import WITHOUT_END, WorkingCopy

_Led = TypeVar("_Led")


def decide_without_culprits(
    unit: Unit,
    envelopes: Iterable[DataEnvelope],
    wakes: Iterable[Wake],
    now: Instant,
    rules: Rules,
    share: int = WITHOUT_END,
) -> Turned:
    """As `resequencer.turn.decide`, which raised.

    Raises what the turn raises on no envelope in particular: then the unit cannot go on.
    """
    return without_culprits(
        unit, envelopes, now, rules, lambda copy, came: take_turn(copy, _each_written_down(copy, came), wakes), share
    )


def without_culprits(
    unit: Unit,
    envelopes: Iterable[DataEnvelope],
    now: Instant,
    rules: Rules,
    turn: Callable[[WorkingCopy, Iterable[DataEnvelope]], _Led],
    share: int = WITHOUT_END,
) -> _Led:
    """What `turn` leads to, without what it fails on of these envelopes and of those that wait in the unit."""
    left, careful = _Left(unit, tuple(envelopes)), guarded(rules)
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
    aside: tuple[Spoiled, ...] = ()

    def begin(self, rules: Rules, now: Instant, share: int) -> WorkingCopy:
        """What had waited is dead-lettered by the copy itself, for the unit says so."""
        copy = WorkingCopy(self.unit, rules, now, share)
        for each in self.aside:
            copy.effects.arrive(each.record.origin.offset)
            copy.effects.bury(each.record, each.reason, each.error)
        return copy

    def without(self, culprit: DataEnvelope, error: str) -> "_Left | None":
        """None if it is not there: it was set aside, and the turn fails still."""
        spoiled = Spoiled(culprit.record, DeadLetterReason.HANDLER_FAILED, error)
        rest = tuple(each for each in self.came if each is not culprit)
        if len(rest) < len(self.came):
            return _Left(self.unit, rest, (*self.aside, spoiled))
        unit = _take_out(self.unit, culprit)
        return None if unit is None else _Left(replace(unit, spoiled=(*unit.spoiled, spoiled)), self.came, self.aside)


def _take_out(unit: Unit, culprit: DataEnvelope) -> Unit | None:
    if unit.retry is not None and unit.retry.entry.envelope is culprit:
        return replace(unit, retry=None)
    stash = [each for each in unit.stash if each.envelope is not culprit]
    queue = [each for each in unit.queue if each.envelope is not culprit]
    if len(stash) + len(queue) == len(unit.stash) + len(unit.queue):
        return None
    return replace(unit, stash=reduce(Stash.add, stash, Stash()), queue=reduce(Stash.add, queue, Stash()))


def _each_written_down(copy: WorkingCopy, envelopes: Iterable[DataEnvelope]) -> Iterator[DataEnvelope]:
    """What cannot be written down for the storage is found out here, while it is known what led to it."""
    for each in envelopes:
        yield each
        copy.current = each
        decision_of(copy, copy.unit())
