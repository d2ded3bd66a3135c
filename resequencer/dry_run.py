"""A turn for whoever keeps no units: what would leave."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from domain.dead_letter import DeadLetter
from domain.envelope import DataEnvelope
from domain.notification import Notification
from resequencer.poison import without_poison
from resequencer.turn import receive, wake
from resequencer.turn_context import TurnContext
from resequencer.unit import Unit, Wake
from resequencer.working_copy import WorkingCopy


class DryRunResult(NamedTuple):
    """The unit as it is now, what is to leave, in its order, and whether anything was handled or stashed."""

    unit: Unit
    output: Sequence[Notification | DeadLetter]
    counts: bool


def dry_run(unit: Unit, envelope: DataEnvelope | None, context: TurnContext) -> DryRunResult:
    """The turn of a unit to which this envelope came, or whose stash is released: nothing is made of it that only a storage
    has to know, and nothing tells time. What our own code fails on is set aside as the service does it.
    """
    came = () if envelope is None else (envelope,)
    try:
        return _take_turn(WorkingCopy(unit, context, 0), came, is_released=envelope is None)
    except Exception:  # noqa: BLE001 - Whatever it is, a dead letter says it.
        return without_poison(unit, came, 0, context, lambda copy, left: _take_turn(copy, left, is_released=envelope is None))


def _take_turn(copy: WorkingCopy, envelopes: Iterable[DataEnvelope], *, is_released: bool) -> DryRunResult:
    for each in envelopes:
        copy.current = each
        receive(copy, each)
    if is_released:
        wake(copy, Wake.BOUND)
    return DryRunResult(copy.unit(), copy.effects.output, copy.effects.has_counted)
