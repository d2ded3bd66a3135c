"""Makes rows of facts, and of the notifications that they stand beside. Pure."""

from collections.abc import Iterator
from typing import Any

import msgspec

from guardian.headers import GROUP_ID, MEMBER, NOTIFICATION_ID, POSSIBLE_DUPLICATE, SOURCE_POSITION, texts_of
from notification_service.jobs.audit.groups.amounts import amount_units, units_of
from notification_service.jobs.audit.groups.rows import CLOSE, STATUS, UNREADABLE, FactRow, NotifiedRow, RawRecord
from notification_service.payments.iso20022.codes import TRANSACTION_STATUSES
from notification_service.payments.iso20022.pain002_schema import ORIGINAL_GROUP_HEADER, TYPES
from notification_service.payments.iso20022.simple_types import NOT_PROVIDED
from resequencer.record import Origin

_LONGEST_NUMBER = 64
"""A longer text is no number of a message for the service."""

_valid_text = TYPES["Max35Text"].conform


class _Value(msgspec.Struct):
    type: str
    unit: str = ""
    status: str = ""
    late: bool = False
    amount: str | None = None
    original: dict[str, str] | None = None
    instruction: dict[str, str] | None = None
    person: str = ""


_decode = msgspec.json.Decoder(_Value).decode


def fact_rows(raw: RawRecord) -> Iterator[FactRow]:
    """Yield the row of a fact or of a close; none for other commands."""
    try:
        value = _decode(raw.value) if raw.defect is None else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        yield _unreadable(raw, str(error))
        return
    if value is None:
        yield _unreadable(raw, raw.defect or "")
    elif value.type == CLOSE:
        yield FactRow(CLOSE, raw.partition, raw.place, (raw.key or b"").decode(errors="replace"), person=value.person)
    elif value.type == STATUS:
        yield _row(raw, value)


def _row(raw: RawRecord, value: _Value) -> FactRow:
    texts = texts_of(raw.headers)
    if value.status not in TRANSACTION_STATUSES:
        return _unreadable(raw, f"its status {value.status!r:.40} is no ISO code")
    if texts.get(MEMBER) != value.unit:
        return _unreadable(raw, "its header and its value name different payments")
    origin = Origin.find(texts.get(SOURCE_POSITION, ""))
    total, control_units = _numbers(value.original or {})
    instruction = None if value.instruction is None else value.instruction.get("OrgnlPmtInfId")
    return FactRow(
        STATUS,
        raw.partition,
        raw.place,
        None if value.original is None else (raw.key or b"").decode(errors="replace"),
        value.unit,
        value.status,
        value.late,
        None if value.amount is None else amount_units(value.amount),
        total,
        control_units,
        None if instruction is None else str(_valid_text(instruction) or NOT_PROVIDED),
        texts.get(NOTIFICATION_ID),
        POSSIBLE_DUPLICATE in texts,
        None if origin is None else origin.partition.number,
        None if origin is None else origin.offset,
    )


def _numbers(original: dict[str, str]) -> tuple[int | None, str | None]:
    """Return NbOfTxs, and CtrlSum in hundred-thousandths; None where they are missing or invalid."""
    short = {name: text for name, text in original.items() if len(text) <= _LONGEST_NUMBER}
    valid: dict[str, Any] = ORIGINAL_GROUP_HEADER.conform({"OrgnlMsgId": "x", "OrgnlMsgNmId": "x"} | short) or {}
    total, control_sum = valid.get("OrgnlNbOfTxs"), valid.get("OrgnlCtrlSum")
    return None if total is None else int(total), None if control_sum is None else units_of(control_sum)


def _unreadable(raw: RawRecord, problem: str) -> FactRow:
    return FactRow(UNREADABLE, raw.partition, raw.place, person=f"{raw.where}: a fact that cannot be read: {problem}")


def notified_rows(raw: RawRecord) -> Iterator[NotifiedRow]:
    """Yield the row of a notification that has an id and a group."""
    texts = texts_of(raw.headers)
    identifier, group = texts.get(NOTIFICATION_ID), texts.get(GROUP_ID)
    if identifier is None:
        return
    origin = Origin.find(texts.get(SOURCE_POSITION, ""))
    source = (None, None) if origin is None else (origin.partition.number, origin.offset)
    yield NotifiedRow(identifier, group or "", None if raw.key is None else raw.key.decode(errors="replace"), *source)
