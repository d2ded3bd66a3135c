"""Gives each simulated payment references of its own, so that data of another payment is detected."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec

from notification_service.simulator.expectation import ExpectedMessage
from notification_service.simulator.generate.pain001 import SinglePayment

_LONGEST = 35
"""The longest reference in ISO 20022 (Max35Text), in characters."""

_NOT_PROVIDED = "NOTPROVIDED"


class References(msgspec.Struct, frozen=True):
    """The original's references that a report must quote, one of each part; None if one does not fit a report's schema."""

    message_id: str | None
    payment_information_id: str | None
    end_to_end_id: str | None


def copy_of(payment: SinglePayment, copy: int, uetr: str) -> SinglePayment:
    """Return the payment for copy 0. Later copies have `-copy` at the end of their references, and `uetr` if they have one."""
    if copy == 0:
        return payment
    initiation, instruction, transaction = (msgspec.json.decode(part) for part in _parts(payment))
    _mark(initiation["GrpHdr"], ("MsgId",), copy)
    _mark(instruction, ("PmtInfId",), copy)
    identification = transaction.get("PmtId")
    if isinstance(identification, dict):
        _mark(identification, ("InstrId", "EndToEndId"), copy)
        if "UETR" in identification:
            identification["UETR"] = uetr
    return SinglePayment(*(msgspec.json.encode(part) for part in (initiation, instruction, transaction)))


def references_of(payment: SinglePayment) -> References:
    """Return the references of the payment as it is sent."""
    initiation, instruction, transaction = (msgspec.json.decode(part) for part in _parts(payment))
    identification = transaction.get("PmtId")
    return References(
        _reference(initiation["GrpHdr"], "MsgId"),
        _reference(instruction, "PmtInfId"),
        _reference(identification, "EndToEndId") if isinstance(identification, dict) else None,
    )


def message_of(payment: SinglePayment) -> ExpectedMessage | None:
    """Return the message that the payment says it is of; None if that has no id of its own, so that it is no group."""
    header = msgspec.json.decode(payment.initiation)["GrpHdr"]
    message_id = _reference(header, "MsgId")
    if message_id is None or message_id == _NOT_PROVIDED:
        return None
    party = sha256(msgspec.json.encode(header.get("InitgPty"))).hexdigest()[:12]
    created_at, total, control_sum = (_text(header, name) for name in ("CreDtTm", "NbOfTxs", "CtrlSum"))
    return ExpectedMessage(message_id, party, created_at or "", total, control_sum)


def amount_of(payment: SinglePayment) -> str | None:
    """Return the instructed amount, else the equivalent one, as the payment says it; None if it says none."""
    amount = msgspec.json.decode(payment.transaction).get("Amt")
    if not isinstance(amount, Mapping):
        return None
    equivalent = amount.get("EqvtAmt")
    money = amount.get("InstdAmt") or (equivalent.get("Amt") if isinstance(equivalent, Mapping) else None)
    return _text(money, "value") if isinstance(money, Mapping) else None


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    return value if isinstance(value, str) and value else None


def _parts(payment: SinglePayment) -> tuple[bytes, bytes, bytes]:
    return payment.initiation, payment.instruction, payment.transaction


def _mark(fields: dict[str, object], names: tuple[str, ...], copy: int) -> None:
    ending = f"-{copy}"
    for name in names:
        value = fields.get(name)
        if isinstance(value, str) and value and value != _NOT_PROVIDED:
            fields[name] = value[: _LONGEST - len(ending)] + ending


def _reference(fields: dict[str, object], name: str) -> str | None:
    value = fields.get(name)
    return value if isinstance(value, str) and 0 < len(value) <= _LONGEST else None
