"""What a status report repeats of the original payment, made once per payment data and kept encoded."""

from functools import lru_cache
from typing import Any

import msgspec

from domain.envelope import PAIN_001, PAYMENT_INSTRUCTION, PAYMENT_TRANSACTION
from domain.errors import PermanentError
from resequencer.handlers.complex_types import Type
from resequencer.handlers.pain002_schema import (
    MESSAGE_NAME,
    ORIGINAL_GROUP_HEADER,
    ORIGINAL_PAYMENT_INSTRUCTION,
    ORIGINAL_TRANSACTION_REFERENCE,
    PARTY,
    TRANSACTION,
)
from resequencer.handlers.simple_types import NOT_PROVIDED, JsonNumber
from resequencer.payment_data import PaymentData

DEFAULT_MESSAGE_NAME = "pain.001.001.09"
CACHED_PAYMENTS = 4_096
LARGEST_CACHED_BYTES = 16 * 1024
"""Larger payments are made anew each time, so that the cache stays below some 100 MB whatever comes."""

Fields = tuple[tuple[str, str], ...]
Body = dict[str, Any]

_decoder = msgspec.json.Decoder(float_hook=JsonNumber)
_encoder = msgspec.json.Encoder()


class Original(msgspec.Struct, frozen=True, gc=False):
    """The parts of a report that depend on payment data alone; what is encoded may be None where there is nothing to say.

    `group` belongs into OrgnlGrpInfAndSts, `instruction` into OrgnlPmtInfAndSts, `transaction` into TxInfAndSts, each at
    the beginning. `is_single` is true where the original message says that it had one transaction.
    """

    initiating_party: msgspec.Raw | None
    group: Fields
    is_single: bool
    instruction: Fields
    transaction: Fields
    reference: msgspec.Raw | None


def original_of(data: PaymentData) -> Original:
    """Cached by the three raw bodies. Parts that are missing leave their fields out, or NOTPROVIDED where the schema demands one.

    Raises:
        PermanentError: A body is no JSON, not UTF-8, or nested too deep to be read.
    """
    group = data.find_mds(PAIN_001)
    instruction, transaction = data.find_mds(PAYMENT_INSTRUCTION), data.find_mds(PAYMENT_TRANSACTION)
    if len(group or b"") + len(instruction or b"") + len(transaction or b"") > LARGEST_CACHED_BYTES:
        return _make(group, instruction, transaction)
    return _make_cached(group, instruction, transaction)


def _make(group: bytes | None, instruction: bytes | None, transaction: bytes | None) -> Original:
    message = _decode(group, PAIN_001)
    header = _mapping(message.get("GrpHdr"))
    payment = _decode(instruction, PAYMENT_INSTRUCTION)
    transfer = _decode(transaction, PAYMENT_TRANSACTION)
    group_fields = _fields(_original_group(message, header), ORIGINAL_GROUP_HEADER)
    return Original(
        initiating_party=_encoded(header.get("InitgPty"), PARTY),
        group=group_fields,
        is_single=any(name == "OrgnlNbOfTxs" and int(value) == 1 for name, value in group_fields),
        instruction=_fields(_original_instruction(payment), ORIGINAL_PAYMENT_INSTRUCTION) or (("OrgnlPmtInfId", NOT_PROVIDED),),
        transaction=_fields(_original_identification(transfer), TRANSACTION),
        reference=_encoded(_original_reference(payment, transfer), ORIGINAL_TRANSACTION_REFERENCE),
    )


_make_cached = lru_cache(CACHED_PAYMENTS)(_make)


def _original_group(message: Body, header: Body) -> Body:
    return {
        "OrgnlMsgId": header.get("MsgId"),
        "OrgnlMsgNmId": _message_name(message, header),
        "OrgnlCreDtTm": header.get("CreDtTm"),
        "OrgnlNbOfTxs": header.get("NbOfTxs"),
        "OrgnlCtrlSum": header.get("CtrlSum"),
    }


def _message_name(message: Body, header: Body) -> str:
    name = MESSAGE_NAME.conform(message.get("MsgNmId") or header.get("MsgNmId"))
    return name if isinstance(name, str) else DEFAULT_MESSAGE_NAME


def _original_instruction(payment: Body) -> Body:
    return {
        "OrgnlPmtInfId": payment.get("PmtInfId"),
        "OrgnlNbOfTxs": payment.get("NbOfTxs"),
        "OrgnlCtrlSum": payment.get("CtrlSum"),
    }


def _original_identification(transfer: Body) -> Body:
    identification = _mapping(transfer.get("PmtId"))
    return {
        "OrgnlInstrId": identification.get("InstrId"),
        "OrgnlEndToEndId": identification.get("EndToEndId"),
        "OrgnlUETR": identification.get("UETR"),
    }


def _original_reference(payment: Body, transfer: Body) -> Body:
    """What both levels may say is taken from the transaction, else from the instruction."""
    return {
        "Amt": transfer.get("Amt"),
        "ReqdExctnDt": payment.get("ReqdExctnDt"),
        "PmtTpInf": transfer.get("PmtTpInf") or payment.get("PmtTpInf"),
        "PmtMtd": payment.get("PmtMtd"),
        "RmtInf": transfer.get("RmtInf"),
        "UltmtDbtr": _party(transfer.get("UltmtDbtr") or payment.get("UltmtDbtr")),
        "Dbtr": _party(payment.get("Dbtr")),
        "DbtrAcct": payment.get("DbtrAcct"),
        "DbtrAgt": payment.get("DbtrAgt"),
        "DbtrAgtAcct": payment.get("DbtrAgtAcct"),
        "CdtrAgt": transfer.get("CdtrAgt"),
        "CdtrAgtAcct": transfer.get("CdtrAgtAcct"),
        "Cdtr": _party(transfer.get("Cdtr")),
        "CdtrAcct": transfer.get("CdtrAcct"),
        "UltmtCdtr": _party(transfer.get("UltmtCdtr")),
        "Purp": transfer.get("Purp"),
    }


def _party(value: object) -> Body | None:
    return None if value is None else {"Pty": value}


def _decode(body: bytes | None, object_type: str) -> Body:
    if body is None:
        return {}
    try:
        return _mapping(_decoder.decode(body))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise PermanentError(f"the body of {object_type} cannot be read: {error}") from error


def _mapping(value: object) -> Body:
    return value if isinstance(value, dict) else {}


def _fields(value: Body, kind: Type) -> Fields:
    conformed = kind.conform(value)
    return tuple((name, str(text)) for name, text in conformed.items()) if isinstance(conformed, dict) else ()


def _encoded(value: object, kind: Type) -> msgspec.Raw | None:
    conformed = kind.conform(value)
    return None if conformed is None else msgspec.Raw(_encoder.encode(conformed))
