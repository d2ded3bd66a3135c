"""Reads pain.001 files and splits them into single payments, each as the three ISO-tag JSON parts of an envelope."""

import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from xml.etree.ElementTree import Element, ParseError

import msgspec
from defusedxml.common import DefusedXmlException  # type: ignore[import-untyped]  # It ships no types.
from defusedxml.ElementTree import fromstring  # type: ignore[import-untyped]

from notification_service.events.identifiers import shown
from notification_service.simulator.expectation import ExpectedMessage
from resequencer.errors import ResequencerError

IsoTree: TypeAlias = "str | dict[str, IsoTree] | list[IsoTree]"
"""A text, the fields of an element, or an array. An element with an attribute is `{"Ccy": "EUR", "value": "12.50"}`."""

_DEEPEST = 64

_REPEATED = frozenset(
    (
        *("AddtlRmtInf", "AdjstmntAmtAndRsn", "AdrLine", "Authstn", "CdtTrfTxInf", "DscntApldAmt", "InstrForCdtrAgt", "LineDtls"),
        *("PmtInf", "Rcrd", "RfrdDocInf", "RgltryRptg", "RltdRmtInf", "RmtLctnDtls", "SplmtryData", "Strd", "SvcLvl", "Ustrd"),
    )
)
"""Elements that may repeat anywhere in pain.001.001.09."""

_REPEATED_WITHIN = frozenset(
    {
        ("OrgId", "Othr"),
        ("PrvtId", "Othr"),
        ("CtctDtls", "Othr"),
        ("RgltryRptg", "Dtls"),
        ("TaxAmt", "Dtls"),
        ("Dtls", "Inf"),
        ("LineDtls", "Id"),
        ("RfrdDocAmt", "TaxAmt"),
    }
)
"""(parent, element) pairs whose element may repeat in this parent only."""


class XmlRefused(ResequencerError):
    """The bytes are no XML of an ISO 20022 message; the text gives the reason."""


class IsoDocument(NamedTuple):
    """The root element's namespace (empty if none) and name, and the fields below it."""

    namespace: str
    name: str
    tree: IsoTree


def parse_iso_xml(document: bytes) -> IsoDocument:
    """Parse XML with any prefix, encoding and byte order mark. Texts are stripped, comments and namespaced attributes ignored.

    Raises:
        XmlRefused: The XML is not well-formed, has a DTD, or is nested deeper than any message.
    """
    root = _parse(document)
    namespace = root.tag[1:].partition("}")[0] if root.tag.startswith("{") else ""
    return IsoDocument(namespace, _tag(root), _tree(root, depth=0))


def _parse(document: bytes) -> Element:
    try:
        root: Element = fromstring(document, forbid_dtd=True)
    except ParseError as error:
        raise XmlRefused(f"not well-formed XML: {error}") from error
    except DefusedXmlException as error:
        raise XmlRefused("declares a DTD or entities, which no ISO 20022 message does") from error
    except (ValueError, LookupError) as error:
        raise XmlRefused(f"its character encoding is not supported: {str(error)[:200]}") from error
    return root


def _tree(element: Element, *, depth: int) -> IsoTree:
    if depth > _DEEPEST:
        raise XmlRefused(f"{shown(_tag(element))} is nested deeper than {_DEEPEST} elements, as in no ISO 20022 message")
    fields: dict[str, IsoTree] = {key: value for key, value in element.attrib.items() if not key.startswith("{")}
    children = list(element)
    if not children:
        text = (element.text or "").strip()
        return fields | {"value": text} if fields else text
    for child in children:
        _put(fields, _tag(element), _tag(child), _tree(child, depth=depth + 1))
    return fields


def _put(fields: dict[str, IsoTree], parent: str, tag: str, value: IsoTree) -> None:
    known = fields.get(tag)
    if isinstance(known, list):
        known.append(value)
    elif known is not None:
        fields[tag] = [known, value]
    elif tag in _REPEATED or (parent, tag) in _REPEATED_WITHIN:
        fields[tag] = [value]
    else:
        fields[tag] = value


def _tag(element: Element) -> str:
    return element.tag.rpartition("}")[2]


_NAMESPACE = re.compile(r"urn:iso:std:iso:20022:tech:xsd:(pain\.001\.001\.\d\d)")
_CURRENT = "pain.001.001.09"


class Pain001Refused(ResequencerError):
    """The file gives no payments. `file` names it, `problem` gives the reason."""

    def __init__(self, file: str, problem: str) -> None:
        super().__init__(f"{file}: {problem}")
        self.file = file
        self.problem = problem


class SinglePayment(msgspec.Struct, frozen=True):
    """One credit transfer transaction with its group header and its instruction, each as JSON.

    `initiation` is `{"GrpHdr": …}`, plus `MsgNmId` if the message is not a pain.001.001.09. `instruction` holds the fields of
    `PmtInf` without transactions, `transaction` those of `CdtTrfTxInf`.
    """

    initiation: bytes
    instruction: bytes
    transaction: bytes


def read_payments(file: Path) -> tuple[SinglePayment, ...]:
    """Return all payments of a pain.001 file, in the order of the document; at least one.

    Raises:
        Pain001Refused: The file cannot be read, is not XML, or is not a pain.001 with payments.
    """
    try:
        document = file.read_bytes()
    except OSError as error:
        raise Pain001Refused(str(file), error.strerror or str(error)) from error
    return parse_payments(document, name=str(file))


def parse_payments(document: bytes, *, name: str) -> tuple[SinglePayment, ...]:
    """Return the payments of a document; `name` names it in an error.

    Raises:
        Pain001Refused: As for `read_payments`.
    """
    try:
        parsed = parse_iso_xml(document)
    except XmlRefused as error:
        raise Pain001Refused(name, str(error)) from error
    initiation, message_name = _initiation(parsed, name)
    payments = tuple(_payments(initiation, message_name))
    if not payments:
        raise Pain001Refused(name, "it has no payment: no <CdtTrfTxInf> within a <PmtInf>")
    return payments


def _initiation(document: IsoDocument, name: str) -> tuple[dict[str, IsoTree], str]:
    """Return the fields of `CstmrCdtTrfInitn`, and the name of the message."""
    found = _NAMESPACE.fullmatch(document.namespace)
    if found is None or document.name != "Document":
        what = f"its root is {shown(document.name)} of namespace {shown(document.namespace)}"
        raise Pain001Refused(name, f"not a pain.001: {what}")
    initiation = document.tree.get("CstmrCdtTrfInitn") if isinstance(document.tree, dict) else None
    if not isinstance(initiation, dict):
        raise Pain001Refused(name, "not a pain.001: no <CstmrCdtTrfInitn> in its <Document>")
    if not isinstance(initiation.get("GrpHdr"), dict):
        raise Pain001Refused(name, "it has no <GrpHdr>")
    return initiation, found[1]


def _payments(initiation: dict[str, IsoTree], message_name: str) -> Iterator[SinglePayment]:
    head = {"GrpHdr": initiation["GrpHdr"]}
    if message_name != _CURRENT:
        head["MsgNmId"] = message_name
    for instruction in _elements(initiation, "PmtInf"):
        without_transactions = {tag: value for tag, value in instruction.items() if tag != "CdtTrfTxInf"}
        for transaction in _elements(instruction, "CdtTrfTxInf"):
            yield SinglePayment(*(msgspec.json.encode(part) for part in (head, without_transactions, transaction)))


def _elements(fields: dict[str, IsoTree], tag: str) -> Iterator[dict[str, IsoTree]]:
    return (each for each in fields.get(tag, ()) if isinstance(each, dict))


_LONGEST = 35
"""The longest reference in ISO 20022 (Max35Text), in characters."""

_NOT_PROVIDED = "NOTPROVIDED"


class References(msgspec.Struct, frozen=True):
    """The original's references that a report must quote, one of each part; None if one does not fit a report's schema."""

    message_id: str | None
    payment_information_id: str | None
    end_to_end_id: str | None


def copy_of(payment: SinglePayment, seed: int, copy: int, uetr: str) -> SinglePayment:
    """Return the payment for a copy, from 0, of the run of this seed: no reference is that of another copy or another run.

    Its references have `-seed` at their end, behind it `-copy` from copy 1 on, and it has `uetr` if the payment has one. A
    reference that no report could quote stays as it is.
    """
    initiation, instruction, transaction = (msgspec.json.decode(part) for part in _parts(payment))
    ending = f"-{seed}-{copy}" if copy else f"-{seed}"
    _mark(initiation["GrpHdr"], ("MsgId",), ending)
    _mark(instruction, ("PmtInfId",), ending)
    identification = transaction.get("PmtId")
    if isinstance(identification, dict):
        _mark(identification, ("InstrId", "EndToEndId"), ending)
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


def _mark(fields: dict[str, object], names: tuple[str, ...], ending: str) -> None:
    for name in names:
        value = fields.get(name)
        if isinstance(value, str) and 0 < len(value) <= _LONGEST and value != _NOT_PROVIDED:
            fields[name] = _fitting(value, _LONGEST - len(ending)) + ending


def _fitting(value: str, length: int) -> str:
    """Return a value that is too long as its beginning with a digest: two that differ at their ends still do."""
    if len(value) <= length:
        return value
    digest = sha256(value.encode()).hexdigest()[:8]
    return value[: length - len(digest)] + digest


def _reference(fields: dict[str, object], name: str) -> str | None:
    value = fields.get(name)
    return value if isinstance(value, str) and 0 < len(value) <= _LONGEST else None
