"""A turn for whoever keeps no units: what would leave."""

from collections.abc import Sequence
from typing import NamedTuple

from domain.dead_letter import DeadLetter
from domain.envelope import DataEnvelope
from domain.notification import Notification
from resequencer.rules import Rules
from resequencer.turn import receive, wake
from resequencer.unit import Unit, Wake
from resequencer.working_copy import WorkingCopy


class Led(NamedTuple):
    """The unit as it is now, what is to leave, in its order, and whether anything was handled or stashed."""

    unit: Unit
    outgoing: Sequence[Notification | DeadLetter]
    counts: bool


def lead(unit: Unit, envelope: DataEnvelope | None, rules: Rules) -> Led:
    """The turn of a unit to which this envelope came, or whose stash is released: nothing is made of it that only a storage
    has to know, and nothing tells time.
    """
    copy = WorkingCopy(unit, rules, 0)
    if envelope is None:
        wake(copy, Wake.BOUND)
    else:
        receive(copy, envelope)
    return Led(copy.unit(), copy.effects.outgoing, copy.effects.has_counted)
