"""The fields of the three parts of a pain.001 that a report repeats, in the notation of the schema and with the report's types.

Nothing is mandatory here: a report replaces missing mandatory fields by NOTPROVIDED.
"""

from typing import Final

from notification_service.payments.iso20022.pain002_schema import TYPES
from notification_service.payments.iso20022.part_reader import PartReader
from notification_service.payments.iso20022.schema_notation import Schema
from resequencer.envelope import PAIN_001, PAYMENT_INSTRUCTION, PAYMENT_TRANSACTION

_schema = Schema(TYPES.values())
_sequence = _schema.sequence

_sequence(
    "GrpHdr",
    *("MsgId? Max35Text", "MsgNmId? Max35Text", "CreDtTm? ISODateTime", "NbOfTxs? Max15NumericText"),
    *("CtrlSum? DecimalNumber", "InitgPty? PartyIdentification135"),
)
MESSAGE: Final = PartReader(PAIN_001, _sequence("Message", "MsgNmId? Max35Text", "GrpHdr? GrpHdr"))
INSTRUCTION: Final = PartReader(
    PAYMENT_INSTRUCTION,
    _sequence(
        "PmtInf",
        *("PmtInfId? Max35Text", "PmtMtd? PaymentMethod4Code", "NbOfTxs? Max15NumericText", "CtrlSum? DecimalNumber"),
        *("PmtTpInf? PaymentTypeInformation27", "ReqdExctnDt? DateAndDateTime2Choice", "Dbtr? PartyIdentification135"),
        *("DbtrAcct? CashAccount38", "DbtrAgt? BranchAndFinancialInstitutionIdentification6", "DbtrAgtAcct? CashAccount38"),
        "UltmtDbtr? PartyIdentification135",
    ),
)
_sequence("PmtId", "InstrId? Max35Text", "EndToEndId? Max35Text", "UETR? UUIDv4Identifier")
TRANSACTION: Final = PartReader(
    PAYMENT_TRANSACTION,
    _sequence(
        "CdtTrfTxInf",
        *("PmtId? PmtId", "PmtTpInf? PaymentTypeInformation27", "Amt? AmountType4Choice", "UltmtDbtr? PartyIdentification135"),
        *("CdtrAgt? BranchAndFinancialInstitutionIdentification6", "CdtrAgtAcct? CashAccount38"),
        *("Cdtr? PartyIdentification135", "CdtrAcct? CashAccount38", "UltmtCdtr? PartyIdentification135"),
        *("Purp? Purpose2Choice", "RmtInf? RemittanceInformation16"),
    ),
)
