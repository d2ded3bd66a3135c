"""Problems of a group: why it does not complete by itself, although all its payments may be through."""

from decimal import Decimal
from enum import StrEnum

from aggregation.payments.amounts import plain_of, units_of
from aggregation.payments.head import Head


class Problem(StrEnum):
    """`CONTRADICTORY_TOTAL` is of NbOfTxs and CtrlSum. `EXCEEDED`: there are more members than the total."""

    NO_TOTAL = "no-total"
    CONTRADICTORY_TOTAL = "contradictory-total"
    EXCEEDED = "exceeded"
    CONTROL_SUM = "control-sum"


def find_problems(head: Head) -> dict[Problem, str]:
    """Return the problems, each with what differs."""
    found: dict[Problem, str] = {}
    message = head.message
    if head.total is None:
        found[Problem.NO_TOTAL] = "no payment says how many the message has (NbOfTxs)"
    contradictions = [
        f"{name} is {one} for some payments and {other} for others"
        for name, one, other in (
            ("NbOfTxs", message.OrgnlNbOfTxs, head.other_total),
            ("CtrlSum", message.OrgnlCtrlSum, head.other_sum),
        )
        if other is not None
    ]
    if contradictions:
        found[Problem.CONTRADICTORY_TOTAL] = ", and ".join(contradictions)
    if head.total is not None and head.members > head.total:
        found[Problem.EXCEEDED] = f"the message says that it has {head.total} payments, and {head.members} have come"
    difference = _control_sum_difference(head)
    if difference is not None:
        found[Problem.CONTROL_SUM] = difference
    return found


def is_through(head: Head) -> bool:
    """Whether all members are there, and final."""
    return head.total is not None and head.final == head.members == head.total and head.other_total is None


def _control_sum_difference(head: Head) -> str | None:
    """Compare the sum once all members are there. It goes without regard to currencies, as ISO 20022 defines CtrlSum."""
    said, tallies = head.message.OrgnlCtrlSum, head.statuses.values()
    if said is None or head.members != head.total or any(each.unknown for each in tallies):
        return None
    total = plain_of(sum(units_of(each.total) for each in tallies))
    return None if Decimal(total) == Decimal(said) else f"the message says the sum {said}, and its payments have {total}"
