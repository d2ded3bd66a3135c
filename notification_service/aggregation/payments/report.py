"""The report on a group: a pain.002.001.10 without transactions, and the headers of its record."""

from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from enum import StrEnum
from hashlib import sha256
from typing import Any

import msgspec

from guardian.headers import (
    AMENDED,
    CLOSED_BY,
    GROUP_ID,
    GROUP_REPORT,
    GROUP_STATUS,
    GROUP_TOTAL,
    INCOMPLETE,
    MARKED,
    NOTIFICATION_ID,
    PROCESSING_ENTITY,
)
from notification_service.aggregation.core import Completion
from notification_service.aggregation.payments.head import GroupState, Head, Instruction, Tally, plain_of, units_of
from notification_service.payments.iso20022.codes import ACCEPTED_STATUSES, GROUP_STATUSES
from notification_service.payments.iso20022.pain002_schema import REPORT, render_report_xml
from resequencer.clock import Instant, instant_text
from resequencer.notification import group_report_id
from resequencer.printable import counted

_ENDED_WITHOUT = frozenset({"RJCT", "CANC"})
_SETTLED = frozenset({"ACSC", "ACCC"})


def find_group_status(statuses: Collection[str]) -> str | None:
    """Return GrpSts or PmtInfSts of payments with these statuses. Both are of ExternalPaymentGroupStatus1Code.

    One status that is a group code, too: that. ACSC and ACCC: ACSC, which holds for all. Accepted payments beside rejected or
    cancelled ones: PART. Otherwise None; all cancelled is none either, because CANC is no group code.
    """
    found = frozenset(statuses)
    if len(found) == 1:
        (status,) = found
        return status if status in GROUP_STATUSES else None
    if found == _SETTLED:
        return "ACSC"
    is_part = bool(found & ACCEPTED_STATUSES and found & _ENDED_WITHOUT) and found <= ACCEPTED_STATUSES | _ENDED_WITHOUT
    return "PART" if is_part else None


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
        found[Problem.EXCEEDED] = f"the message says that it has {counted(head.total, 'payment')}, and {head.members:,} came"
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
    stated, tallies = head.message.OrgnlCtrlSum, head.statuses.values()
    if stated is None or head.members != head.total or any(each.unknown for each in tallies):
        return None
    total = plain_of(sum(units_of(each.total) for each in tallies))
    return None if Decimal(total) == Decimal(stated) else f"the message says the sum {stated}, and its payments have {total}"


def _contradiction(instruction: Instruction, *, is_all_there: bool) -> str | None:
    number, control_sum, total = instruction.OrgnlNbOfTxs, instruction.OrgnlCtrlSum, instruction.total
    members = sum(instruction.counts.values())
    if number is not None and (members > int(number) or (is_all_there and members != int(number))):
        return f"says that it has {counted(int(number), 'payment')}, and {members:,} came"
    is_summed = is_all_there and total is not None and not instruction.unknown
    if control_sum is not None and is_summed and Decimal(total or "") != Decimal(control_sum):
        return f"says the sum {control_sum}, and its payments have {total}"
    return None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def _as_xml(report: Mapping[str, Any]) -> bytes:
    return render_report_xml(report).encode()


TARGET_TYPES: Mapping[str, Callable[[Mapping[str, Any]], bytes]] = {"report": _encode, "report-xml": _as_xml}
"""How the value of the record is made of `{"CstmrPmtStsRpt": …}`."""


def report_hash(head: Head) -> str:
    """Return a hash of what a report on the head says: of all but its number and its instant."""
    content = (_original_group(head), _instructions(head), find_missing_mark(head), head.closed_by)
    return sha256(_encode(content)).hexdigest()[:16]


def make_report(key: str, head: Head, now: Instant, encode: Callable[[Mapping[str, Any]], bytes]) -> Completion:
    """Return the report with the head's number. Its key is the initiating party.

    It is made of the key, the head and the instant alone, so that it is the same again after a transaction that was aborted.
    """
    message_id = group_report_id(key, head.reports)
    report = REPORT.conform(
        {
            "GrpHdr": {
                "MsgId": message_id,
                "CreDtTm": instant_text(now),
                "InitgPty": _decode(head.party) if head.party else None,
            },
            "OrgnlGrpInfAndSts": _original_group(head),
            "OrgnlPmtInfAndSts": _instructions(head),
        }
    )
    return Completion(head.who.encode(), _headers(key, head, message_id), encode({"CstmrPmtStsRpt": report}))


def find_missing_mark(head: Head) -> int | None:
    """Return how many payments a report on the head lacks. None for a report that is not incomplete.

    After the deadline it may be 0: all have come and are final, but a problem keeps the group from being complete.
    """
    return head.missing if head.missing or head.state is GroupState.INCOMPLETE else None


def find_status(head: Head) -> str | None:
    """Return GrpSts, which a report has if all payments are there and final."""
    return find_group_status(head.statuses) if _has_status(head) else None


def _has_status(head: Head) -> bool:
    return is_through(head) and head.state is not GroupState.INCOMPLETE


def _original_group(head: Head) -> dict[str, Any]:
    return {
        "OrgnlMsgId": head.message.OrgnlMsgId,
        "OrgnlMsgNmId": head.message.OrgnlMsgNmId,
        "OrgnlCreDtTm": head.message.OrgnlCreDtTm,
        "OrgnlNbOfTxs": head.message.OrgnlNbOfTxs,
        "OrgnlCtrlSum": head.message.OrgnlCtrlSum,
        "GrpSts": find_status(head),
        "NbOfTxsPerSts": [_per_status(status, tally) for status, tally in head.statuses.items()],
    }


def _per_status(status: str, tally: Tally) -> dict[str, Any]:
    total = None if tally.unknown else tally.total
    return {"DtldNbOfTxs": str(tally.count), "DtldSts": status, "DtldCtrlSum": total}


def _instructions(head: Head) -> list[dict[str, Any]]:
    """Return OrgnlPmtInfAndSts, which says more than the group only where the message has several payment informations."""
    if len(head.instructions) < 2:
        return []
    has_status, contradictions = _has_status(head), find_contradictions(head)
    return [
        _instruction(name, each, has_status=has_status and name not in contradictions) for name, each in head.instructions.items()
    ]


def _instruction(name: str, instruction: Instruction, *, has_status: bool) -> dict[str, Any]:
    return {
        "OrgnlPmtInfId": name,
        "OrgnlNbOfTxs": instruction.OrgnlNbOfTxs,
        "OrgnlCtrlSum": instruction.OrgnlCtrlSum,
        "PmtInfSts": find_group_status(instruction.counts) if has_status else None,
        "NbOfTxsPerSts": [{"DtldNbOfTxs": str(count), "DtldSts": status} for status, count in instruction.counts.items()],
    }


def _headers(key: str, head: Head, message_id: str) -> tuple[tuple[str, bytes], ...]:
    missing = find_missing_mark(head)
    headers = (
        (NOTIFICATION_ID, message_id),
        (GROUP_ID, key),
        (GROUP_TOTAL, head.total),
        (PROCESSING_ENTITY, head.entity),
        (GROUP_REPORT, head.reports),
        (GROUP_STATUS, find_status(head)),
        (INCOMPLETE, missing),
        (AMENDED, MARKED.decode() if head.reports > 1 else None),
        (CLOSED_BY, head.closed_by),
    )
    return tuple((name, str(value).encode()) for name, value in headers if value is not None)
