"""A turn without storage and clock that returns what would be published. The audit uses it."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from domain.dead_letter import DeadLetter
from domain.envelope import DataEnvelope
from domain.fact import Fact
from domain.notification import Notification
from domain.order import Order, OrderKind, OrderOutcome
from resequencer.turn.context import TurnContext
from resequencer.turn.orders import execute
from resequencer.turn.poison import without_poison
from resequencer.turn.turn import receive, wake
from resequencer.turn.working_copy import WorkingCopy
from resequencer.unit import Ordered, Unit, Wake


class DryRunResult(NamedTuple):
    """The unit after the turn, its output in order without facts, and whether anything was handled or stashed (`counts`)."""

    unit: Unit
    output: Sequence[Notification | DeadLetter]
    counts: bool


def dry_run(unit: Unit, envelope: DataEnvelope | None, context: TurnContext) -> DryRunResult:
    """Take the turn of a unit to which this envelope came; with None, release the unit's stash.

    Nothing is encoded for a storage, and the time is always 0. Envelopes on which the service's own code fails become dead
    letters, as in the service.
    """
    came = () if envelope is None else (envelope,)
    try:
        return _take_turn(WorkingCopy(unit, context, 0), came, is_released=envelope is None)
    except Exception:  # noqa: BLE001 - The turn is repeated, and the error becomes a dead letter.
        return without_poison(unit, came, 0, context, lambda copy, left: _take_turn(copy, left, is_released=envelope is None))


def dry_run_order(unit: Unit, order: Order, context: TurnContext) -> DryRunResult | None:
    """Take the turn of a unit in which this order is executed; None if it changes nothing.

    Its precondition is not looked at, because it names instants. A hold begins, and ends only by an order.
    """
    if order.kind in (OrderKind.RELEASE, OrderKind.SKIP) and not unit.stash:
        return None
    copy = WorkingCopy(unit, context, 0)
    try:
        execute(copy, Ordered(order, 0, has_backlog=False))
    except Exception:  # noqa: BLE001 - A user's own strategy failed, and so did the order.
        return None
    return _result(copy) if copy.is_changed else None


def _take_turn(copy: WorkingCopy, envelopes: Iterable[DataEnvelope], *, is_released: bool) -> DryRunResult:
    for each in envelopes:
        copy.current = each
        receive(copy, each)
    if is_released:
        wake(copy, Wake.BOUND)
    return _result(copy)


def _result(copy: WorkingCopy) -> DryRunResult:
    output = [each for each in copy.effects.output if not isinstance(each, OrderOutcome | Fact)]
    return DryRunResult(copy.unit(), output, copy.effects.has_counted)
