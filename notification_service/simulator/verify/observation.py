"""Reads the service's output: one notification or dead letter per line."""

from collections.abc import Mapping
from typing import Any

import msgspec

from guardian.headers import (
    DEAD_LETTER_REASON,
    DEAD_LETTER_SOURCE_POSITION,
    ENVELOPE_ID,
    EVENT_NAME,
    INCOMPLETE,
    LATE,
    NOTIFICATION_ID,
    POSSIBLE_DUPLICATE,
    PROCESS_FLOW_NAME,
    RELEASED_BY,
    REQUEUED_FROM,
    SOURCE_POSITION,
    texts_of,
)
from notification_service.connectors.line_format import Defect, decode_line
from notification_service.simulator.generate.iso_tree import XmlRefused, parse_iso_xml
from resequencer.record import Origin


class ObservedReport(msgspec.Struct, frozen=True):
    """The content of a pain.002; None for what it does not contain. `reason` is an ISO code or a proprietary one."""

    message_id: str | None = None
    original_message_id: str | None = None
    original_payment_information_id: str | None = None
    original_end_to_end_id: str | None = None
    status: str | None = None
    reason: str | None = None


class ObservedNotification(msgspec.Struct, frozen=True):
    """A notification by its key (the unit) and headers; `report` is None if the value is no report.

    `partition` is that of its source position; None without a valid one.
    """

    unit: str
    notification_id: str
    envelope_id: str | None
    event: str | None
    flow: str | None
    partition: int | None
    incomplete: str | None
    is_late: bool
    is_possible_duplicate: bool
    report: ObservedReport | None
    is_released_by_order: bool = False


class ObservedDeadLetter(msgspec.Struct, frozen=True):
    """A dead letter by its headers; `position` is its record's partition and offset, None if it names none.

    `is_requeued` is set if the record came from a requeue of an earlier dead letter.
    """

    reason: str
    position: tuple[int, int] | None
    is_possible_duplicate: bool
    is_requeued: bool = False


def read_notification(line: bytes) -> ObservedNotification | Defect:
    """Read a notification from a line without its newline."""
    read = decode_line(line)
    if isinstance(read, Defect):
        return read
    headers = texts_of(read.headers)
    identifier = headers.get(NOTIFICATION_ID)
    if read.key is None or identifier is None:
        return Defect(f"no key or no header {NOTIFICATION_ID}")
    position = _position(headers.get(SOURCE_POSITION))
    return ObservedNotification(
        unit=read.key.decode(errors="replace"),
        notification_id=identifier,
        envelope_id=headers.get(ENVELOPE_ID),
        event=headers.get(EVENT_NAME),
        flow=headers.get(PROCESS_FLOW_NAME),
        partition=position and position[0],
        incomplete=headers.get(INCOMPLETE),
        is_late=LATE in headers,
        is_possible_duplicate=POSSIBLE_DUPLICATE in headers,
        report=_find_report(read.value),
        is_released_by_order=RELEASED_BY in headers,
    )


def read_dead_letter(line: bytes) -> ObservedDeadLetter | Defect:
    """Read a dead letter from a line without its newline."""
    read = decode_line(line)
    if isinstance(read, Defect):
        return read
    headers = texts_of(read.headers)
    return ObservedDeadLetter(
        headers.get(DEAD_LETTER_REASON, ""),
        _position(headers.get(DEAD_LETTER_SOURCE_POSITION)),
        POSSIBLE_DUPLICATE in headers,
        REQUEUED_FROM in headers,
    )


def _position(text: str | None) -> tuple[int, int] | None:
    found = Origin.find(text or "")
    return (found.partition.number, found.offset) if found else None


def _find_report(value: bytes) -> ObservedReport | None:
    """Return the report in the value, for any of the three target types that have one."""
    try:
        tree: Any = parse_iso_xml(value).tree if value.lstrip().startswith(b"<") else msgspec.json.decode(value)
    except (XmlRefused, msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    if isinstance(tree, Mapping) and "CstmrPmtStsRpt" not in tree:
        tree = tree.get("report")
    report = _at(tree, "CstmrPmtStsRpt")
    if report is None:
        return None
    payment = _at(report, "OrgnlPmtInfAndSts")
    transaction = _at(payment, "TxInfAndSts")
    reason = _at(transaction, "StsRsnInf", "Rsn")
    return ObservedReport(
        _text(report, "GrpHdr", "MsgId"),
        _text(report, "OrgnlGrpInfAndSts", "OrgnlMsgId"),
        _text(payment, "OrgnlPmtInfId"),
        _text(transaction, "OrgnlEndToEndId"),
        _text(transaction, "TxSts"),
        _text(reason, "Cd") or _text(reason, "Prtry"),
    )


def _at(tree: Any, *tags: str) -> Any:
    """Return the element at the path, the first if it repeats; None if it is absent."""
    for tag in tags:
        tree = tree.get(tag) if isinstance(tree, Mapping) else None
        if isinstance(tree, list):
            tree = tree[0] if tree else None
    return tree


def _text(tree: Any, *tags: str) -> str | None:
    found = _at(tree, *tags)
    return found if isinstance(found, str) else None
