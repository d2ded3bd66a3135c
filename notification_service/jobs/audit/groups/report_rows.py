"""Makes rows of group reports. What a report contradicts by itself is its flaw. Pure."""

from collections.abc import Iterator, Sequence
from typing import Any
from xml.etree.ElementTree import Element, ParseError

import msgspec
from defusedxml.common import DefusedXmlException  # type: ignore[import-untyped]  # It ships no types.
from defusedxml.ElementTree import fromstring  # type: ignore[import-untyped]

from guardian.headers import (
    AMENDED,
    CLOSED_BY,
    GROUP_ID,
    GROUP_REPORT,
    GROUP_STATUS,
    GROUP_TOTAL,
    INCOMPLETE,
    NOTIFICATION_ID,
    POSSIBLE_DUPLICATE,
    texts_of,
)
from notification_service.jobs.audit.groups.judgement import NO_SUM, Count, find_status_of_all, fingerprint, units_of
from notification_service.jobs.audit.groups.rows import RawRecord, ReportRow
from resequencer.notification import group_report_id

_ROOT = "CstmrPmtStsRpt"
_LISTS = frozenset({"NbOfTxsPerSts", "OrgnlPmtInfAndSts"})
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_UNREADABLE = (
    msgspec.MsgspecError,
    ParseError,
    DefusedXmlException,
    ArithmeticError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
)
"""What bytes of another program, or another form of report, may lead to."""


def report_rows(raw: RawRecord) -> Iterator[ReportRow]:
    """Yield the row of a report. One that cannot be read has only a flaw."""
    texts = texts_of(raw.headers)
    group, number = texts.get(GROUP_ID), texts.get(GROUP_REPORT, "")
    if raw.defect is not None or group is None or not number.isdecimal():
        problem = raw.defect or f"it lacks the header {GROUP_ID}, or a number in {GROUP_REPORT}"
        yield ReportRow(None, raw.order, flaw=f"{raw.where}: a group report that cannot be read: {problem}")
        return
    try:
        yield _row(raw, texts, group, int(number))
    except _UNREADABLE as error:
        yield ReportRow(None, raw.order, flaw=f"{raw.where}: a group report that cannot be read: {error}")


def _row(raw: RawRecord, texts: dict[str, str], group: str, number: int) -> ReportRow:
    report = _read(raw.value)
    original, instructions = report["OrgnlGrpInfAndSts"], report.get("OrgnlPmtInfAndSts", [])
    counts = [_count(each) for each in original.get("NbOfTxsPerSts", [])]
    within = [count for each in instructions for count in _counts_within(each)]
    total, control_sum, missing = original.get("OrgnlNbOfTxs"), original.get("OrgnlCtrlSum"), texts.get(INCOMPLETE)
    return ReportRow(
        group,
        raw.order,
        number,
        POSSIBLE_DUPLICATE in texts,
        _find_flaw(texts, report, group, number),
        fingerprint(counts),
        fingerprint(within),
        _counts_text(counts),
        None if total is None else int(total),
        None if control_sum is None else units_of(control_sum),
        None if missing is None else int(missing),
        texts.get(CLOSED_BY),
        original.get("GrpSts"),
        find_status_of_all([each.status for each in counts]),
        all(one.get("PmtInfSts") in _statuses_within(one) for one in instructions),
        all(one.get("PmtInfSts") is None for one in instructions),
    )


def _read(value: bytes) -> dict[str, Any]:
    read = _plain(fromstring(value)) if value.startswith(b"<") else _decode(value)
    report: dict[str, Any] = {} if isinstance(read, str) else read
    found: dict[str, Any] = report[_ROOT]
    return found


def _plain(element: Element) -> dict[str, Any] | str:
    """Return an element of XML as JSON has it."""
    if not len(element):
        return element.text or ""
    made: dict[str, Any] = {}
    for each in element:
        if _name(each) in _LISTS:
            made.setdefault(_name(each), []).append(_plain(each))
        else:
            made[_name(each)] = _plain(each)
    return made


def _name(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def _count(status: dict[str, str]) -> Count:
    control_sum = status.get("DtldCtrlSum")
    return Count("", status["DtldSts"], int(status["DtldNbOfTxs"]), NO_SUM if control_sum is None else units_of(control_sum))


def _counts_within(instruction: dict[str, Any]) -> Iterator[Count]:
    for each in instruction.get("NbOfTxsPerSts", []):
        yield _count(each)._replace(instruction=instruction["OrgnlPmtInfId"], units="")


def _statuses_within(instruction: dict[str, Any]) -> tuple[str | None, ...]:
    """Return what the PmtInfSts may be if all payments are there and final.

    There is none where the payment information has another number than it says. Whether its sum is the one that it says is not in
    the report.
    """
    within = instruction.get("NbOfTxsPerSts", [])
    total = instruction.get("OrgnlNbOfTxs")
    if total is not None and int(total) != sum(int(each["DtldNbOfTxs"]) for each in within):
        return (None,)
    status = find_status_of_all([each["DtldSts"] for each in within])
    return (status,) if instruction.get("OrgnlCtrlSum") is None else (status, None)


def _counts_text(counts: Sequence[Count]) -> str:
    return ", ".join(f"{each.number} {each.status}" for each in counts) or "no payment"


def _find_flaw(texts: dict[str, str], report: dict[str, Any], group: str, number: int) -> str | None:
    original, identifier = report["OrgnlGrpInfAndSts"], group_report_id(group, number)
    total = original.get("OrgnlNbOfTxs")
    if texts.get(NOTIFICATION_ID) != identifier or report["GrpHdr"].get("MsgId") != identifier:
        return f"its id is not that of report {number} on this group"
    if texts.get(GROUP_STATUS) != original.get("GrpSts"):
        return "its header group-status and its GrpSts differ"
    if texts.get(GROUP_TOTAL) != (None if total is None else str(int(total))):
        return "its header group-total and its OrgnlNbOfTxs differ"
    if (AMENDED in texts) != (number > 1):
        return "it is marked `amended` without an earlier report" if number == 1 else "it is not marked `amended`"
    return None
