"""pain.002.001.10 as data: the types that a status report uses, under their ISO names and in the order of the XSD.

Elements that a report of a credit transfer never has (direct debits, charges, tracker data, settlement) are left out. A test
compares every line with the XSD.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from notification_service.payments.iso20022.schema_notation import Schema
from notification_service.payments.iso20022.simple_types import (
    Amount,
    Codes,
    Date,
    Decimal,
    Indicator,
    NumericText,
    Pattern,
    Text,
)

NAMESPACE: Final = "urn:iso:std:iso:20022:tech:xsd:pain.002.001.10"


def _codes(name: str, codes: str) -> Codes:
    return Codes(name, frozenset(codes.split()))


def _pattern(name: str, pattern: str) -> Pattern:
    return Pattern(name, re.compile(pattern))


_BIC = "[A-Z0-9]{4}[A-Z]{2}[A-Z0-9]{2}(?:[A-Z0-9]{3})?"
_CURRENCY = _pattern("ActiveOrHistoricCurrencyCode", "[A-Z]{3}")

_schema = Schema(
    (
        *(Text(f"Max{length}Text", length) for length in (4, 16, 34, 35, 70, 105, 128, 140, 2048)),
        Text("ExternalAccountIdentification1Code", 4),
        Text("ExternalCashAccountType1Code", 4),
        Text("ExternalCategoryPurpose1Code", 4),
        Text("ExternalClearingSystemIdentification1Code", 5),
        Text("ExternalDiscountAmountType1Code", 4),
        Text("ExternalDocumentLineType1Code", 4),
        Text("ExternalFinancialInstitutionIdentification1Code", 4),
        Text("ExternalGarnishmentType1Code", 4),
        Text("ExternalLocalInstrument1Code", 35),
        Text("ExternalOrganisationIdentification1Code", 4),
        Text("ExternalPaymentGroupStatus1Code", 4),
        Text("ExternalPaymentTransactionStatus1Code", 4),
        Text("ExternalPersonIdentification1Code", 4),
        Text("ExternalProxyAccountType1Code", 4),
        Text("ExternalPurpose1Code", 4),
        Text("ExternalServiceLevel1Code", 4),
        Text("ExternalStatusReason1Code", 4),
        Text("ExternalTaxAmountType1Code", 4),
        _CURRENCY,
        _pattern("AnyBICDec2014Identifier", _BIC),
        _pattern("BICFIDec2014Identifier", _BIC),
        _pattern("CountryCode", "[A-Z]{2}"),
        _pattern("Exact4AlphaNumericText", "[a-zA-Z0-9]{4}"),
        _pattern("IBAN2007Identifier", "[A-Z]{2}[0-9]{2}[a-zA-Z0-9]{1,30}"),
        _pattern("LEIIdentifier", "[A-Z0-9]{18}[0-9]{2}"),
        _pattern("PhoneNumber", r"\+[0-9]{1,3}-[0-9()+\-]{1,30}"),
        _pattern("UUIDv4Identifier", "[a-f0-9]{8}-[a-f0-9]{4}-4[a-f0-9]{3}-[89ab][a-f0-9]{3}-[a-f0-9]{12}"),
        _codes("AddressType2Code", "ADDR PBOX HOME BIZZ MLTO DLVY"),
        _codes("ClearingChannel2Code", "RTGS RTNS MPNS BOOK"),
        _codes("CreditDebitCode", "CRDT DBIT"),
        _codes("DocumentType3Code", "RADM RPIN FXDR DISP PUOR SCOR"),
        _codes("DocumentType6Code", "MSIN CNFA DNFA CINV CREN DEBN HIRI SBIN CMCN SOAC DISP BOLD VCHR AROI TSUT PUOR"),
        _codes("NamePrefix2Code", "DOCT MADM MISS MIST MIKS"),
        _codes("PaymentMethod4Code", "CHK TRF DD TRA"),
        _codes("PreferredContactMethod1Code", "LETT MAIL PHON FAXX CELL"),
        _codes("Priority2Code", "HIGH NORM"),
        _codes("SequenceType3Code", "FRST RCUR FNAL OOFF RPRE"),
        _codes(
            "TaxRecordPeriod1Code",
            "MM01 MM02 MM03 MM04 MM05 MM06 MM07 MM08 MM09 MM10 MM11 MM12 QTR1 QTR2 QTR3 QTR4 HLF1 HLF2",
        ),
        NumericText("Max15NumericText", 15),
        Decimal("DecimalNumber", 18, 17),
        Decimal("Number", 18, 0),
        Decimal("PercentageRate", 11, 10),
        Amount(
            "ActiveOrHistoricCurrencyAndAmount",
            Decimal("ActiveOrHistoricCurrencyAndAmount_SimpleType", 18, 5, is_signed=False),
            _CURRENCY,
        ),
        Date("ISODate"),
        Date("ISODateTime", has_time=True),
        Indicator("TrueFalseIndicator"),
    )
)
_sequence, _choice = _schema.sequence, _schema.choice
TYPES: Final = _schema.types


def _code_or_proprietary(name: str, code: str) -> None:
    _choice(name, f"Cd {code}", "Prtry Max35Text")


_code_or_proprietary("AccountSchemeName1Choice", "ExternalAccountIdentification1Code")
_code_or_proprietary("CashAccountType2Choice", "ExternalCashAccountType1Code")
_code_or_proprietary("CategoryPurpose1Choice", "ExternalCategoryPurpose1Code")
_code_or_proprietary("ClearingSystemIdentification2Choice", "ExternalClearingSystemIdentification1Code")
_code_or_proprietary("CreditorReferenceType1Choice", "DocumentType3Code")
_code_or_proprietary("DiscountAmountType1Choice", "ExternalDiscountAmountType1Code")
_code_or_proprietary("DocumentLineType1Choice", "ExternalDocumentLineType1Code")
_code_or_proprietary("FinancialIdentificationSchemeName1Choice", "ExternalFinancialInstitutionIdentification1Code")
_code_or_proprietary("GarnishmentType1Choice", "ExternalGarnishmentType1Code")
_code_or_proprietary("LocalInstrument2Choice", "ExternalLocalInstrument1Code")
_code_or_proprietary("OrganisationIdentificationSchemeName1Choice", "ExternalOrganisationIdentification1Code")
_code_or_proprietary("PersonIdentificationSchemeName1Choice", "ExternalPersonIdentification1Code")
_code_or_proprietary("ProxyAccountType1Choice", "ExternalProxyAccountType1Code")
_code_or_proprietary("Purpose2Choice", "ExternalPurpose1Code")
_code_or_proprietary("ReferredDocumentType3Choice", "DocumentType6Code")
_code_or_proprietary("ServiceLevel8Choice", "ExternalServiceLevel1Code")
_code_or_proprietary("StatusReason6Choice", "ExternalStatusReason1Code")
_code_or_proprietary("TaxAmountType1Choice", "ExternalTaxAmountType1Code")

# Addresses, contacts and identities.
_sequence("GenericIdentification30", "Id Exact4AlphaNumericText", "Issr Max35Text", "SchmeNm? Max35Text")
_choice("AddressType3Choice", "Cd AddressType2Code", "Prtry GenericIdentification30", bare=("Cd",))
_sequence(
    "PostalAddress24",
    *("AdrTp? AddressType3Choice", "Dept? Max70Text", "SubDept? Max70Text", "StrtNm? Max70Text", "BldgNb? Max16Text"),
    *("BldgNm? Max35Text", "Flr? Max70Text", "PstBx? Max16Text", "Room? Max70Text", "PstCd? Max16Text", "TwnNm? Max35Text"),
    *("TwnLctnNm? Max35Text", "DstrctNm? Max35Text", "CtrySubDvsn? Max35Text", "Ctry? CountryCode", "AdrLine*7 Max70Text"),
)
_sequence("OtherContact1", "ChanlTp Max4Text", "Id? Max128Text")
_sequence(
    "Contact4",
    *("NmPrfx? NamePrefix2Code", "Nm? Max140Text", "PhneNb? PhoneNumber", "MobNb? PhoneNumber", "FaxNb? PhoneNumber"),
    *("EmailAdr? Max2048Text", "EmailPurp? Max35Text", "JobTitl? Max35Text", "Rspnsblty? Max35Text", "Dept? Max70Text"),
    *("Othr* OtherContact1", "PrefrdMtd? PreferredContactMethod1Code"),
)
_sequence(
    "GenericOrganisationIdentification1",
    *("Id Max35Text", "SchmeNm? OrganisationIdentificationSchemeName1Choice", "Issr? Max35Text"),
)
_sequence(
    "OrganisationIdentification29",
    *("AnyBIC/BICOrBEI? AnyBICDec2014Identifier", "LEI? LEIIdentifier", "Othr* GenericOrganisationIdentification1"),
)
_sequence(
    "DateAndPlaceOfBirth1",
    *("BirthDt ISODate", "PrvcOfBirth? Max35Text", "CityOfBirth Max35Text", "CtryOfBirth CountryCode"),
)
_sequence(
    "GenericPersonIdentification1",
    *("Id Max35Text", "SchmeNm? PersonIdentificationSchemeName1Choice", "Issr? Max35Text"),
)
_sequence("PersonIdentification13", "DtAndPlcOfBirth? DateAndPlaceOfBirth1", "Othr* GenericPersonIdentification1")
_choice("Party38Choice", "OrgId OrganisationIdentification29", "PrvtId PersonIdentification13")
_sequence(
    "PartyIdentification135",
    *("Nm? Max140Text", "PstlAdr? PostalAddress24", "Id? Party38Choice", "CtryOfRes? CountryCode", "CtctDtls? Contact4"),
)

# Agents and accounts.
_sequence("ClearingSystemMemberIdentification2", "ClrSysId? ClearingSystemIdentification2Choice", "MmbId Max35Text")
_sequence(
    "GenericFinancialIdentification1",
    *("Id Max35Text", "SchmeNm? FinancialIdentificationSchemeName1Choice", "Issr? Max35Text"),
)
_sequence(
    "FinancialInstitutionIdentification18",
    *("BICFI/BIC? BICFIDec2014Identifier", "ClrSysMmbId? ClearingSystemMemberIdentification2", "LEI? LEIIdentifier"),
    *("Nm? Max140Text", "PstlAdr? PostalAddress24", "Othr? GenericFinancialIdentification1"),
)
_sequence("BranchData3", "Id? Max35Text", "LEI? LEIIdentifier", "Nm? Max140Text", "PstlAdr? PostalAddress24")
_sequence(
    "BranchAndFinancialInstitutionIdentification6",
    *("FinInstnId FinancialInstitutionIdentification18", "BrnchId? BranchData3"),
)
_sequence("GenericAccountIdentification1", "Id Max34Text", "SchmeNm? AccountSchemeName1Choice", "Issr? Max35Text")
_choice("AccountIdentification4Choice", "IBAN IBAN2007Identifier", "Othr GenericAccountIdentification1")
_sequence("ProxyAccountIdentification1", "Tp? ProxyAccountType1Choice", "Id Max2048Text")
_sequence(
    "CashAccount38",
    *("Id AccountIdentification4Choice", "Tp? CashAccountType2Choice", "Ccy? ActiveOrHistoricCurrencyCode", "Nm? Max70Text"),
    "Prxy? ProxyAccountIdentification1",
)
_choice("Party40Choice", "Pty PartyIdentification135", "Agt BranchAndFinancialInstitutionIdentification6")

# Remittance information: documents, amounts, references, taxes, garnishments.
_sequence("CreditorReferenceType2", "CdOrPrtry CreditorReferenceType1Choice", "Issr? Max35Text")
_sequence("CreditorReferenceInformation2", "Tp? CreditorReferenceType2", "Ref? Max35Text")
_sequence("ReferredDocumentType4", "CdOrPrtry ReferredDocumentType3Choice", "Issr? Max35Text")
_sequence("DocumentLineType1", "CdOrPrtry DocumentLineType1Choice", "Issr? Max35Text")
_sequence("DocumentLineIdentification1", "Tp? DocumentLineType1", "Nb? Max35Text", "RltdDt? ISODate")
_sequence("DiscountAmountAndType1", "Tp? DiscountAmountType1Choice", "Amt ActiveOrHistoricCurrencyAndAmount", bare=("Amt",))
_sequence("TaxAmountAndType1", "Tp? TaxAmountType1Choice", "Amt ActiveOrHistoricCurrencyAndAmount", bare=("Amt",))
_sequence(
    "DocumentAdjustment1",
    *("Amt ActiveOrHistoricCurrencyAndAmount", "CdtDbtInd? CreditDebitCode", "Rsn? Max4Text", "AddtlInf? Max140Text"),
)
for _name in ("RemittanceAmount2", "RemittanceAmount3"):
    _sequence(
        _name,
        *("DuePyblAmt? ActiveOrHistoricCurrencyAndAmount", "DscntApldAmt* DiscountAmountAndType1"),
        *("CdtNoteAmt? ActiveOrHistoricCurrencyAndAmount", "TaxAmt* TaxAmountAndType1"),
        *("AdjstmntAmtAndRsn* DocumentAdjustment1", "RmtdAmt? ActiveOrHistoricCurrencyAndAmount"),
    )
_sequence("DocumentLineInformation1", "Id+ DocumentLineIdentification1", "Desc? Max2048Text", "Amt? RemittanceAmount3")
_sequence(
    "ReferredDocumentInformation7",
    *("Tp? ReferredDocumentType4", "Nb? Max35Text", "RltdDt? ISODate", "LineDtls* DocumentLineInformation1"),
)
_sequence("TaxParty1", "TaxId? Max35Text", "RegnId? Max35Text", "TaxTp? Max35Text")
_sequence("TaxAuthorisation1", "Titl? Max35Text", "Nm? Max140Text")
_sequence("TaxParty2", "TaxId? Max35Text", "RegnId? Max35Text", "TaxTp? Max35Text", "Authstn? TaxAuthorisation1")
_sequence("DatePeriod2", "FrDt ISODate", "ToDt ISODate")
_sequence("TaxPeriod2", "Yr? ISODate", "Tp? TaxRecordPeriod1Code", "FrToDt? DatePeriod2")
_sequence("TaxRecordDetails2", "Prd? TaxPeriod2", "Amt ActiveOrHistoricCurrencyAndAmount")
_sequence(
    "TaxAmount2",
    *("Rate? PercentageRate", "TaxblBaseAmt? ActiveOrHistoricCurrencyAndAmount"),
    *("TtlAmt? ActiveOrHistoricCurrencyAndAmount", "Dtls* TaxRecordDetails2"),
)
_sequence(
    "TaxRecord2",
    *("Tp? Max35Text", "Ctgy? Max35Text", "CtgyDtls? Max35Text", "DbtrSts? Max35Text", "CertId? Max35Text", "FrmsCd? Max35Text"),
    *("Prd? TaxPeriod2", "TaxAmt? TaxAmount2", "AddtlInf? Max140Text"),
)
_sequence(
    "TaxInformation7",
    *("Cdtr? TaxParty1", "Dbtr? TaxParty2", "UltmtDbtr? TaxParty2", "AdmstnZone? Max35Text", "RefNb? Max140Text"),
    *("Mtd? Max35Text", "TtlTaxblBaseAmt? ActiveOrHistoricCurrencyAndAmount"),
    *("TtlTaxAmt? ActiveOrHistoricCurrencyAndAmount", "Dt? ISODate", "SeqNb? Number", "Rcrd* TaxRecord2"),
)
_sequence("GarnishmentType1", "CdOrPrtry GarnishmentType1Choice", "Issr? Max35Text")
_sequence(
    "Garnishment3",
    *("Tp GarnishmentType1", "Grnshee? PartyIdentification135", "GrnshmtAdmstr? PartyIdentification135"),
    *("RefNb? Max140Text", "Dt? ISODate", "RmtdAmt? ActiveOrHistoricCurrencyAndAmount"),
    *("FmlyMdclInsrncInd? TrueFalseIndicator", "MplyeeTermntnInd? TrueFalseIndicator"),
)
_sequence(
    "StructuredRemittanceInformation16",
    *("RfrdDocInf* ReferredDocumentInformation7", "RfrdDocAmt? RemittanceAmount2"),
    *("CdtrRefInf? CreditorReferenceInformation2", "Invcr? PartyIdentification135", "Invcee? PartyIdentification135"),
    *("TaxRmt? TaxInformation7", "GrnshmtRmt? Garnishment3", "AddtlRmtInf*3 Max140Text"),
)
_sequence("RemittanceInformation16", "Ustrd* Max140Text", "Strd* StructuredRemittanceInformation16")

# The original transaction.
_sequence("EquivalentAmount2", "Amt ActiveOrHistoricCurrencyAndAmount", "CcyOfTrf ActiveOrHistoricCurrencyCode")
_choice("AmountType4Choice", "InstdAmt ActiveOrHistoricCurrencyAndAmount", "EqvtAmt EquivalentAmount2")
_choice("DateAndDateTime2Choice", "Dt ISODate", "DtTm ISODateTime", bare=("Dt", "DtTm"))
_sequence(
    "PaymentTypeInformation27",
    *("InstrPrty? Priority2Code", "ClrChanl? ClearingChannel2Code", "SvcLvl* ServiceLevel8Choice"),
    *("LclInstrm? LocalInstrument2Choice", "SeqTp? SequenceType3Code", "CtgyPurp? CategoryPurpose1Choice"),
)
ORIGINAL_TRANSACTION_REFERENCE: Final = _sequence(
    "OriginalTransactionReference28",
    *("Amt? AmountType4Choice", "ReqdExctnDt? DateAndDateTime2Choice", "PmtTpInf? PaymentTypeInformation27"),
    *("PmtMtd? PaymentMethod4Code", "RmtInf? RemittanceInformation16", "UltmtDbtr? Party40Choice", "Dbtr? Party40Choice"),
    *("DbtrAcct? CashAccount38", "DbtrAgt? BranchAndFinancialInstitutionIdentification6", "DbtrAgtAcct? CashAccount38"),
    *("CdtrAgt? BranchAndFinancialInstitutionIdentification6", "CdtrAgtAcct? CashAccount38", "Cdtr? Party40Choice"),
    *("CdtrAcct? CashAccount38", "UltmtCdtr? Party40Choice", "Purp? Purpose2Choice"),
)

# The report around it.
STATUS_REASON: Final = _sequence("StatusReasonInformation12", "Rsn? StatusReason6Choice", "AddtlInf* Max105Text")
TRANSACTION: Final = _sequence(
    "PaymentTransaction105",
    *("OrgnlInstrId? Max35Text", "OrgnlEndToEndId? Max35Text", "OrgnlUETR? UUIDv4Identifier"),
    *("TxSts? ExternalPaymentTransactionStatus1Code", "StsRsnInf* StatusReasonInformation12"),
    "OrgnlTxRef? OriginalTransactionReference28",
)
_sequence(
    "NumberOfTransactionsPerStatus5",
    *("DtldNbOfTxs Max15NumericText", "DtldSts ExternalPaymentTransactionStatus1Code", "DtldCtrlSum? DecimalNumber"),
)
ORIGINAL_PAYMENT_INSTRUCTION: Final = _sequence(
    "OriginalPaymentInstruction32",
    *("OrgnlPmtInfId Max35Text", "OrgnlNbOfTxs? Max15NumericText", "OrgnlCtrlSum? DecimalNumber"),
    *("PmtInfSts? ExternalPaymentGroupStatus1Code", "NbOfTxsPerSts* NumberOfTransactionsPerStatus5"),
    "TxInfAndSts* PaymentTransaction105",
)
ORIGINAL_GROUP_HEADER: Final = _sequence(
    "OriginalGroupHeader17",
    *("OrgnlMsgId Max35Text", "OrgnlMsgNmId Max35Text", "OrgnlCreDtTm? ISODateTime", "OrgnlNbOfTxs? Max15NumericText"),
    *("OrgnlCtrlSum? DecimalNumber", "GrpSts? ExternalPaymentGroupStatus1Code"),
    "NbOfTxsPerSts* NumberOfTransactionsPerStatus5",
)
GROUP_HEADER: Final = _sequence("GroupHeader86", "MsgId Max35Text", "CreDtTm ISODateTime", "InitgPty? PartyIdentification135")
REPORT: Final = _sequence(
    "CustomerPaymentStatusReportV10",
    *("GrpHdr GroupHeader86", "OrgnlGrpInfAndSts OriginalGroupHeader17", "OrgnlPmtInfAndSts* OriginalPaymentInstruction32"),
)
PARTY: Final = TYPES["PartyIdentification135"]
REASON: Final = TYPES["StatusReason6Choice"]
MESSAGE_NAME: Final = TYPES["Max35Text"]


_VALUE = "value"


def render_report_xml(report: Mapping[str, Any]) -> str:
    """Render a decoded ISO-tag JSON report as an XML document with its declaration. Its texts must be valid in XML."""
    parts = ['<?xml version="1.0" encoding="UTF-8"?>\n<Document xmlns="', NAMESPACE, '">']
    _render_children(report, parts)
    parts.append("</Document>\n")
    return "".join(parts)


def _render_children(children: Mapping[str, Any], parts: list[str]) -> None:
    for name, value in children.items():
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, str):
                parts.append(f"<{name}>{_escaped(each)}</{name}>")
            elif _VALUE in each:
                attributes = "".join(f' {key}="{_escaped(text)}"' for key, text in each.items() if key != _VALUE)
                parts.append(f"<{name}{attributes}>{_escaped(each[_VALUE])}</{name}>")
            else:
                parts.append(f"<{name}>")
                _render_children(each, parts)
                parts.append(f"</{name}>")


def _escaped(text: str) -> str:
    """Escape a text or attribute. A bare carriage return would be read back as a line feed (XML 1.0, section 2.11)."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped.replace('"', "&quot;").replace("\r", "&#13;")
