import re
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element as XmlElement

import pytest
from defusedxml import ElementTree

from notification_service.payments.iso20022.complex_types import Choice, Element, Sequence
from notification_service.payments.iso20022.pain002_schema import NAMESPACE, TYPES
from notification_service.payments.iso20022.schema_notation import UNBOUNDED
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

XS = "{http://www.w3.org/2001/XMLSchema}"


@pytest.fixture(scope="module")
def xsd(samples: Path) -> XmlElement:
    root: XmlElement = ElementTree.parse(samples / "xsd" / "pain.002.001.10.xsd").getroot()
    return root


@pytest.fixture(scope="module")
def definitions(xsd: XmlElement) -> dict[str, XmlElement]:
    return {each.attrib["name"]: each for each in xsd if each.tag != f"{XS}element"}


def facets(definition: XmlElement) -> dict[str, Any]:
    restriction = definition.find(f"{XS}restriction")
    assert restriction is not None
    found: dict[str, Any] = {"base": restriction.attrib["base"], "codes": set()}
    for facet in restriction:
        name = facet.tag.removeprefix(XS)
        if name == "enumeration":
            found["codes"].add(facet.attrib["value"])
        else:
            found[name] = facet.attrib["value"]
    return found


def as_python(pattern: str) -> str:
    """Translate a pattern: the XSD writes {3,3} for {3} and {0,1} for ?, and all its groups capture."""
    shorter = re.sub(r"\{([0-9]+),\1\}", r"{\1}", pattern).replace("{0,1}", "?")
    return re.sub(r"\((?=\[)", "(?:", shorter)


def expected_element(child: XmlElement) -> tuple[str, str, bool, int]:
    most = child.attrib.get("maxOccurs", "1")
    return (
        child.attrib["name"],
        child.attrib["type"],
        child.attrib.get("minOccurs", "1") != "0",
        UNBOUNDED if most == "unbounded" else int(most),
    )


def stated_element(element: Element) -> tuple[str, str, bool, int]:
    return element.name, element.type.name, element.is_required, element.most


def test_the_namespace_is_that_of_the_xsd(xsd: XmlElement) -> None:
    assert xsd.attrib["targetNamespace"] == NAMESPACE


@pytest.mark.parametrize("name", [name for name, kind in TYPES.items() if isinstance(kind, Sequence)])
def test_a_sequence_has_the_order_the_types_and_the_occurrences_of_the_xsd(name: str, definitions: dict[str, XmlElement]) -> None:
    expected = [expected_element(each) for each in definitions[name].findall(f"{XS}sequence/{XS}element")]
    kind = TYPES[name]
    assert isinstance(kind, Sequence)
    stated = [stated_element(each) for each in kind.elements]
    used = {each[0] for each in stated}
    assert stated == [each for each in expected if each[0] in used]
    assert not [each for each in expected if each[2] and each[0] not in used], "a mandatory element is missing from the table"


@pytest.mark.parametrize("name", [name for name, kind in TYPES.items() if isinstance(kind, Choice)])
def test_a_choice_has_the_alternatives_of_the_xsd(name: str, definitions: dict[str, XmlElement]) -> None:
    kind = TYPES[name]
    assert isinstance(kind, Choice)
    expected = [expected_element(each) for each in definitions[name].findall(f"{XS}choice/{XS}element")]
    assert [stated_element(each) for each in kind.elements] == expected


@pytest.mark.parametrize("name", [name for name, kind in TYPES.items() if not isinstance(kind, Sequence | Choice | Amount)])
def test_a_simple_type_has_the_facets_of_the_xsd(name: str, definitions: dict[str, XmlElement]) -> None:
    expected = facets(definitions[name])
    match TYPES[name]:
        case Text(_, max_length):
            assert expected == {"base": "xs:string", "codes": set(), "minLength": "1", "maxLength": str(max_length)}
        case Codes(_, codes):
            assert expected == {"base": "xs:string", "codes": codes}
        case NumericText(_, max_digits):
            assert expected["pattern"] == f"[0-9]{{1,{max_digits}}}"
        case Pattern(_, pattern):
            assert pattern.pattern == as_python(expected["pattern"])
        case Decimal(_, total, fraction, is_signed):
            assert (expected["base"], expected["totalDigits"], expected["fractionDigits"]) == (
                "xs:decimal",
                str(total),
                str(fraction),
            )
            assert is_signed == ("minInclusive" not in expected)
        case Date(_, has_time):
            assert expected["base"] == ("xs:dateTime" if has_time else "xs:date")
        case Indicator():
            assert expected["base"] == "xs:boolean"
        case other:
            pytest.fail(f"{other} is not compared")


def test_an_amount_extends_its_decimal_by_a_currency(definitions: dict[str, XmlElement]) -> None:
    amount = TYPES["ActiveOrHistoricCurrencyAndAmount"]
    assert isinstance(amount, Amount)
    extension = definitions[amount.name].find(f"{XS}simpleContent/{XS}extension")
    assert extension is not None
    assert extension.attrib["base"] == amount.amount.name
    assert [each.attrib for each in extension] == [{"name": "Ccy", "type": amount.currency.name, "use": "required"}]
    expected = facets(definitions[amount.amount.name])
    assert (expected["totalDigits"], expected["fractionDigits"]) == (
        str(amount.amount.total_digits),
        str(amount.amount.fraction_digits),
    )
    assert expected["minInclusive"] == "0"
    assert not amount.amount.is_signed
