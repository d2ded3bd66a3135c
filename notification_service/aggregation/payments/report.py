"""The report on a group: a pain.002.001.10 without transactions, and the headers of its record."""

from collections.abc import Callable, Mapping
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
from notification_service.aggregation.core.aggregate import Completion
from notification_service.aggregation.payments.group_status import find_group_status
from notification_service.aggregation.payments.head import GroupState, Head, Instruction, Tally
from notification_service.aggregation.payments.problems import find_contradictions, is_through
from notification_service.payments.iso20022.pain002_schema import REPORT
from notification_service.payments.iso20022.report_xml import render_report_xml
from resequencer.clock import Instant, instant_text
from resequencer.notification import group_report_id

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def _as_xml(report: Mapping[str, Any]) -> bytes:
    return render_report_xml(report).encode()


TARGET_TYPES: Mapping[str, Callable[[Mapping[str, Any]], bytes]] = {"report": _encode, "report-xml": _as_xml}
"""How the value of the record is made of `{"CstmrPmtStsRpt": …}`."""


def report_hash(head: Head) -> str:
    """Return a hash of what a report on the head says: of all but its number and its instant."""
    said = (_original_group(head), _instructions(head), find_missing_mark(head), head.closed_by)
    return sha256(_encode(said)).hexdigest()[:16]


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
    said = (
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
    return tuple((name, str(value).encode()) for name, value in said if value is not None)
