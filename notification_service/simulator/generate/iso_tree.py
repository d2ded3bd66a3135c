"""Converts ISO 20022 XML to ISO-tag JSON: element names are keys, repeatable elements are arrays."""

from typing import NamedTuple, TypeAlias
from xml.etree.ElementTree import Element, ParseError

from defusedxml.common import DefusedXmlException  # type: ignore[import-untyped]  # It ships no types.
from defusedxml.ElementTree import fromstring  # type: ignore[import-untyped]

from notification_service.events.identifiers import shown
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
    """Parse XML with any prefix, encoding and byte order mark. Texts are stripped; comments and namespaced attributes left out.

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
