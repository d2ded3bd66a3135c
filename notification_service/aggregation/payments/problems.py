"""Problems of a group: why it does not complete by itself, although all its payments may be through. And what else is noted."""

from collections.abc import Mapping
from decimal import Decimal
from enum import StrEnum

from notification_service.aggregation.payments.amounts import plain_of, units_of
from notification_service.aggregation.payments.head import Head, Instruction


class Problem(StrEnum):
    """`CONTRADICTORY_TOTAL` is of NbOfTxs and CtrlSum. `EXCEEDED`: there are more members than the total.

    `AMOUNT_UNKNOWN`: the message says a CtrlSum, which cannot be compared.
    """

    NO_TOTAL = "no-total"
    CONTRADICTORY_TOTAL = "contradictory-total"
    EXCEEDED = "exceeded"
    CONTROL_SUM = "control-sum"
    AMOUNT_UNKNOWN = "amount-unknown"


CONTRADICTION = "payment-information"
"""The name of the note on contradictory payment informations. The group completes all the same."""


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
    unknown = count_unknown_amounts(head)
    if unknown and message.OrgnlCtrlSum is not None:
        found[Problem.AMOUNT_UNKNOWN] = (
            f"the CtrlSum of the message cannot be compared: payments without a known amount: {unknown}"
        )
    return found


def count_unknown_amounts(head: Head) -> int:
    """Return how many amounts are unknown once all members are there: until then a later status may say them."""
    return sum(each.unknown for each in head.statuses.values()) if head.is_all_there else 0


def find_contradictions(head: Head) -> Mapping[str, str]:
    """Return the payment informations whose own NbOfTxs or CtrlSum is not what they hold, each with what differs.

    That there is less than the number says, and another sum, is known once all members of the message are there.
    """
    found = {name: _contradiction(each, is_all_there=head.is_all_there) for name, each in head.instructions.items()}
    return {name: what for name, what in found.items() if what is not None}


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


def _contradiction(instruction: Instruction, *, is_all_there: bool) -> str | None:
    number, control_sum, total = instruction.OrgnlNbOfTxs, instruction.OrgnlCtrlSum, instruction.total
    members = sum(instruction.counts.values())
    if number is not None and (members > int(number) or (is_all_there and members != int(number))):
        return f"says that it has {number} payments, and {members} have come"
    is_summed = is_all_there and total is not None and not instruction.unknown
    if control_sum is not None and is_summed and Decimal(total or "") != Decimal(control_sum):
        return f"says the sum {control_sum}, and its payments have {total}"
    return None
