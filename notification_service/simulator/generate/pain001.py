"""Reads pain.001 files and splits them into single payments, each as the three ISO-tag JSON parts of an envelope."""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from notification_service.events.identifiers import shown
from notification_service.simulator.generate.iso_tree import IsoDocument, IsoTree, XmlRefused, parse_iso_xml
from resequencer.errors import ResequencerError

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
