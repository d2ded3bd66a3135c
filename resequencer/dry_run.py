"""A turn for whoever keeps no units: what would leave."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from domain.dead_letter import DeadLetter
from domain.envelope import DataEnvelope
from domain.notification import Notification
from resequencer.poison import without_culprits
from resequencer.turn import receive, wake
from resequencer.turn_context import Rules
from resequencer.unit import Unit, Wake
from resequencer.working_copy import WorkingCopy


class Led(NamedTuple):
    """The unit as it is now, what is to leave, in its order, and whether anything was handled or stashed."""

    unit: Unit
    output: Sequence[Notification | DeadLetter]
    counts: bool


def lead(unit: Unit, envelope: DataEnvelope | None, rules: Rules) -> Led:
    """The turn of a unit to which this envelope came, or whose stash is released: nothing is made of it that only a storage
    has to know, and nothing tells time. What our own code fails on is set aside as the service does it.
    """
    came = () if envelope is None else (envelope,)
    try:
        return _lead(WorkingCopy(unit, rules, 0), came, is_released=envelope is None)
    except Exception:  # noqa: BLE001 - Whatever it is, a dead letter says it.
        return without_culprits(unit, came, 0, rules, lambda copy, left: _lead(copy, left, is_released=envelope is None))


def _lead(copy: WorkingCopy, envelopes: Iterable[DataEnvelope], *, is_released: bool) -> Led:
    for each in envelopes:
        copy.current = each
        receive(copy, each)
    if is_released:
        wake(copy, Wake.BOUND)
    return Led(copy.unit(), copy.effects.output, copy.effects.has_counted)
