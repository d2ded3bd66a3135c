"""A turn on a copy of a unit, without storage and clock, that returns what would be published. The audit uses it."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from resequencer.dead_letter import DeadLetter
from resequencer.event import Event
from resequencer.notification import Fact, Notification
from resequencer.order import Order, OrderKind, OrderOutcome
from resequencer.turn.decide import begin, receive, wake
from resequencer.turn.orders import execute
from resequencer.turn.poison import without_poison
from resequencer.turn.release import release_up_to
from resequencer.turn.turn import Turn, TurnContext
from resequencer.unit import Ordered, Unit, Wake


class DryRunResult(NamedTuple):
    """The unit after the turn, its output in order without facts, and whether anything was handled or stashed (`counts`)."""

    unit: Unit
    output: Sequence[Notification | DeadLetter]
    counts: bool


def dry_run(unit: Unit, envelope: Event | None, context: TurnContext) -> DryRunResult:
    """Take the turn of a unit to which this envelope came; with None, release the unit's stash. The unit itself stays as it is.

    Nothing is encoded for a storage, and the time is always 0. Envelopes on which the service's own code fails become dead
    letters, as in the service.
    """
    came = () if envelope is None else (envelope,)

    def course(turn: Turn, came: Iterable[Event]) -> None:
        begin(turn)
        for each in came:
            turn.current = each
            receive(turn, each)
        if envelope is None:
            wake(turn, Wake.BOUND)

    turn = Turn(unit.copy(), context, 0)
    try:
        course(turn, came)
    except Exception:  # noqa: BLE001 - The turn is repeated, and the error becomes a dead letter.
        turn = without_poison(unit.copy(), came, 0, context, course)
    return _result(turn)


def dry_run_in_order(unit: Unit, last: tuple[str, int, int], context: TurnContext) -> DryRunResult:
    """Take the turn of a unit whose stash is released by its wait, up to the entry with the order `last`."""
    turn = Turn(unit.copy(), context, 0)
    release_up_to(turn, last)
    return _result(turn)


def dry_run_order(unit: Unit, order: Order, context: TurnContext) -> DryRunResult | None:
    """Take the turn of a unit in which this order is executed; None if it changes nothing. The unit itself stays as it is.

    Its precondition is not looked at, because it names instants. A hold begins, and ends only by an order.
    """
    if order.kind in (OrderKind.RELEASE, OrderKind.SKIP) and not unit.stash:
        return None
    turn = Turn(unit.copy(), context, 0)
    try:
        execute(turn, Ordered(order, 0))
    except Exception:  # noqa: BLE001 - A user's own strategy failed, and so did the order.
        return None
    return _result(turn) if turn.is_changed else None


def _result(turn: Turn) -> DryRunResult:
    output = [each for each in turn.output if not isinstance(each, OrderOutcome | Fact)]
    return DryRunResult(turn.unit, output, bool(turn.handled or turn.stashed))
