"""Records of facts, reports and notifications as tasks read them, and the rows that the audit makes of them. Pure."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from guardian.headers import GROUP_ID, MEMBER, NOTIFICATION_ID, POSSIBLE_DUPLICATE, SOURCE_POSITION, texts_of
from notification_service.jobs.audit.groups.judgement import amount_units, units_of
from notification_service.payments.iso20022.codes import TRANSACTION_STATUSES
from notification_service.payments.iso20022.pain002_schema import ORIGINAL_GROUP_HEADER, TYPES
from notification_service.payments.iso20022.simple_types import NOT_PROVIDED
from resequencer.record import Headers, Origin

STATUS, CLOSE, UNREADABLE = "status", "close", "unreadable"
"""The kinds of rows of facts. A close is an operator's command to report a group as it is."""


class RawRecord(NamedTuple):
    """A record: where it is among those of its kind, as numbers and for people. `defect` says why a line is no record.

    `place` ascends within a partition; `order` ascends also from partition to partition.
    """

    partition: int
    place: int
    order: int
    where: str
    key: bytes | None
    headers: Headers
    value: bytes
    defect: str | None = None


class FactRow(NamedTuple):
    """A fact. `place` is its offset in the `partition` of the facts.

    `group` is None for a payment without one. `units` is the amount in hundred-thousandths as digits, None if it is unknown.
    `total` and `control_units` are the NbOfTxs and the CtrlSum of the message, the latter as `units`, maybe with a fraction.
    `source` is the source position of the record. Of a close only the group and `person` are set, of an unreadable record only
    `person`, which is then the problem.
    """

    kind: str
    partition: int
    place: int
    group: str | None = None
    member: str | None = None
    status: str | None = None
    is_late: bool | None = None
    units: str | None = None
    total: int | None = None
    control_units: str | None = None
    instruction: str | None = None
    notification_id: str | None = None
    is_possible_duplicate: bool | None = None
    source_partition: int | None = None
    source_offset: int | None = None
    person: str | None = None


class ReportRow(NamedTuple):
    """A group report. `place` orders the reports; `flaw` says what is wrong with it by itself, None for nothing.

    `counts` and `instruction_counts` are fingerprints of what it says (0 without payment informations), `counts_text` has the
    former for people. `missing` is the mark `incomplete`. `status` is its GrpSts; `status_if_through` is what its counts lead to
    if all payments are there and final. `has_statuses` and `has_no_statuses` say whether its payment informations all have the
    PmtInfSts that they then must have, and whether none of them has any.
    """

    group: str | None
    place: int
    number: int = 0
    is_possible_duplicate: bool = False
    flaw: str | None = None
    counts: int = 0
    instruction_counts: int = 0
    counts_text: str = ""
    total: int | None = None
    control_units: str | None = None
    missing: int | None = None
    closed_by: str | None = None
    status: str | None = None
    status_if_through: str | None = None
    has_statuses: bool = True
    has_no_statuses: bool = True


class NotifiedRow(NamedTuple):
    """A notification of a payment that belongs to a group, by its id and its source position."""

    notification_id: str
    group: str
    member: str | None
    source_partition: int | None
    source_offset: int | None


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
