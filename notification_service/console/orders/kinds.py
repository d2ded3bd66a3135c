"""The kinds of orders for people: what each is called and does, and which of them fit a unit."""

from typing import NamedTuple

from notification_service.console.units.story import UnitStory
from resequencer.order import OrderKind


class KindText(NamedTuple):
    """What a kind of order is called on a button, and what it does."""

    button: str
    does: str


TEXTS = {
    OrderKind.RELEASE: KindText(
        "Release", "What waits leaves now, as at the deadline. Its notifications are marked incomplete and released-by."
    ),
    OrderKind.SKIP: KindText("Skip", "The lowest missing number is given up. What waited for it goes on, with the same marks."),
    OrderKind.HOLD: KindText("Hold", "Nothing of the unit is handled until the time is over. Its deadline rests."),
    OrderKind.RESUME: KindText("Resume", "The hold ends, and the unit goes on."),
    OrderKind.EXTEND: KindText("Extend", "What waits gets another deadline, at most 24 hours from now."),
    OrderKind.RETRY: KindText("Retry", "The attempt that is due later is made now."),
    OrderKind.DEAD_LETTER: KindText(
        "Dead-letter", "The envelope becomes a dead letter. If it is not under retry, its number stays missing."
    ),
    OrderKind.PAUSE: KindText("Pause", "The input of the partition is not read, and its deadlines rest. Retries go on."),
    OrderKind.RESUME_PARTITION: KindText("Resume", "The input of the partition is read again."),
}

_FITTING = {
    "deadline": (OrderKind.RELEASE, OrderKind.SKIP, OrderKind.HOLD, OrderKind.EXTEND),
    "retry": (OrderKind.RETRY, OrderKind.HOLD),
    "dependency": (OrderKind.RETRY, OrderKind.HOLD),
    "held": (OrderKind.RESUME,),
}


def fitting_kinds(story: UnitStory) -> tuple[OrderKind, ...]:
    """Return the orders that fit what the unit is in. Those for one envelope are beside the envelope."""
    if story.partition is None:
        return ()
    return (OrderKind.HOLD,) if story.wait is None else _FITTING.get(story.wait.kind, ())
