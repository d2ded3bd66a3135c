"""Target `pain001-files`: any file holds payments that the decoder accepts, or is refused by name."""

from fuzz.independent.json import Object, read_json

from notification_service.events.format import find_encoding_flaw, find_reading_flaw
from notification_service.simulator.generate.pain001 import Pain001Refused, parse_payments
from notification_service.simulator.generate.plan import SAMPLES

TOKENS = (
    *(b"<CdtTrfTxInf>", b"</CdtTrfTxInf>", b"<PmtInf>", b"<GrpHdr/>", b"<Document>", b"CstmrCdtTrfInitn", b"<![CDATA[", b"]]>"),
    *(
        b"<!DOCTYPE a [<!ENTITY b 'c'>]>",
        b"&b;",
        b"&#0;",
        b"&#x1F600;",
        b"<?xml version='1.0' encoding='utf-16'?>",
        b"xmlns:a='b'",
    ),
    *(b"pain.001.001.03", b' Ccy="EUR"', b"<!--", b"-->", b"<a:b/>"),
)


def check(data: bytes) -> None:
    """Check the bytes as a pain.001 file.

    * It is refused with a `Pain001Refused` that names it on one line, or there is at least one payment in it.
    * Each part of a payment is a JSON object that the decoder would take, with a group header in the first.
    """
    try:
        payments = parse_payments(data, name="payments.xml")
    except Pain001Refused as error:
        _check_refusal(str(error))
        return
    assert payments
    for each in payments:
        for part in (each.initiation, each.instruction, each.transaction):
            assert isinstance(read_json(part), Object)
            assert find_encoding_flaw(part) is find_reading_flaw(part) is None
        assert isinstance(read_json(each.initiation)["GrpHdr"], Object)


def _check_refusal(text: str) -> None:
    assert text.startswith("payments.xml: ")
    assert text.isprintable(), text
    assert len(text) < 500, text


def seeds() -> list[bytes]:
    """Yield our samples, and a small file."""
    small = b"""<?xml version="1.0"?><Document xmlns="urn:iso:std:iso:20022:tech:xsd:pain.001.001.09"><CstmrCdtTrfInitn>
        <GrpHdr><MsgId>M</MsgId></GrpHdr><PmtInf><PmtInfId>P</PmtInfId><CdtTrfTxInf><Amt><InstdAmt Ccy="EUR">1.50</InstdAmt></Amt>
        </CdtTrfTxInf></PmtInf></CstmrCdtTrfInitn></Document>"""
    return [small, small.replace(b".09", b".03"), *(file.read_bytes() for file in SAMPLES)]
