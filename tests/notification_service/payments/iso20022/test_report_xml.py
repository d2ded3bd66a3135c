from typing import Any

from defusedxml import ElementTree

from notification_service.payments.iso20022.pain002_schema import render_report_xml

NAMESPACE = "{urn:iso:std:iso:20022:tech:xsd:pain.002.001.10}"


def text_of(report: dict[str, Any], path: str) -> str | None:
    root = ElementTree.fromstring(render_report_xml(report).encode())
    text: str | None = root.findtext("/".join(NAMESPACE + step for step in path.split("/")))
    return text


def test_a_report_becomes_a_document_in_the_namespace_of_the_message() -> None:
    assert render_report_xml({"CstmrPmtStsRpt": {"GrpHdr": {"MsgId": "1"}}}) == (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<Document xmlns="urn:iso:std:iso:20022:tech:xsd:pain.002.001.10">'
        "<CstmrPmtStsRpt><GrpHdr><MsgId>1</MsgId></GrpHdr></CstmrPmtStsRpt></Document>\n"
    )


def test_an_array_becomes_an_element_for_each() -> None:
    assert "<A>1</A><A>2</A><B><C>3</C></B><B><C>4</C></B>" in render_report_xml({"A": ["1", "2"], "B": [{"C": "3"}, {"C": "4"}]})


def test_what_stands_beside_a_value_becomes_an_attribute() -> None:
    assert '<InstdAmt Ccy="EUR">12.50</InstdAmt>' in render_report_xml({"InstdAmt": {"Ccy": "EUR", "value": "12.50"}})


def test_text_is_read_back_as_it_was_written() -> None:
    text = "a & b < c > d \" e ' f ]]> ü 漢 😀 \t \n \r \r\n <![CDATA["
    assert text_of({"Nm": text}, "Nm") == text


def test_an_attribute_is_escaped_too() -> None:
    root = ElementTree.fromstring(render_report_xml({"A": {"x": '"<&>"', "value": "v"}}).encode())
    assert root[0].attrib == {"x": '"<&>"'}
