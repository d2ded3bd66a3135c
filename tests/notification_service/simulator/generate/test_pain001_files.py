import re
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from notification_service.simulator.generate.pain001 import Pain001Refused, SinglePayment, parse_payments, read_payments
from notification_service.simulator.generate.plan import SAMPLES

SAMPLE = SAMPLES[0].read_text(encoding="utf-8")
NAMESPACE = "urn:iso:std:iso:20022:tech:xsd:pain.001.001.09"


def decoded(payment: SinglePayment) -> list[dict]:
    return [msgspec.json.decode(part) for part in (payment.initiation, payment.instruction, payment.transaction)]


def document(body: str, namespace: str = NAMESPACE) -> bytes:
    return f'<Document xmlns="{namespace}"><CstmrCdtTrfInitn>{body}</CstmrCdtTrfInitn></Document>'.encode()


def one_payment(transaction: str = "", namespace: str = NAMESPACE) -> list[dict]:
    body = f"<GrpHdr><MsgId>m</MsgId></GrpHdr><PmtInf><PmtInfId>p</PmtInfId><CdtTrfTxInf>{transaction}</CdtTrfTxInf></PmtInf>"
    [payment] = parse_payments(document(body, namespace), name="one.xml")
    return decoded(payment)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_our_samples_are_valid_against_the_schema(sample: Path, shared_samples: Path):
    xmlschema = pytest.importorskip("xmlschema")
    schema = xmlschema.XMLSchema(str(shared_samples / "xsd" / "pain.001.001.09.xsd"))
    assert [str(error) for error in schema.iter_errors(str(sample))] == []


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_our_samples_have_ibans_with_valid_check_digits_and_random_uetrs(sample: Path):
    text = sample.read_text(encoding="utf-8")
    ibans, uetrs = re.findall(r"IBAN>([A-Z0-9]+)<", text), re.findall(r"UETR>(.+?)<", text)
    assert ibans
    assert uetrs
    for iban in ibans:
        assert int("".join(str(int(character, 36)) for character in iban[4:] + iban[:4])) % 97 == 1, iban
    assert [UUID(uetr).version for uetr in uetrs] == [4] * len(uetrs)


def test_a_message_with_several_instructions_is_cut_into_single_payments():
    payments = read_payments(next(sample for sample in SAMPLES if "salaries" in sample.stem))
    instructions = [decoded(payment)[1]["PmtInfId"] for payment in payments]
    ids = [decoded(payment)[2]["PmtId"]["EndToEndId"] for payment in payments]
    assert instructions == ["GEHALT-2026-03"] * 3 + ["LIEFERANTEN-2026-13"] * 2
    assert ids == ["GEHALT-03-P0001", "GEHALT-03-P0002", "GEHALT-03-P0003", "TORF-2026-118", "NOTPROVIDED"]
    assert all("CdtTrfTxInf" not in decoded(payment)[1] for payment in payments)
    assert {decoded(payment)[0]["GrpHdr"]["NbOfTxs"] for payment in payments} == {"5"}


def test_an_element_with_an_attribute_becomes_an_object_with_its_value():
    transaction = one_payment('<Amt><InstdAmt Ccy="EUR"> 12.50 </InstdAmt></Amt>')[2]
    assert transaction == {"Amt": {"InstdAmt": {"Ccy": "EUR", "value": "12.50"}}}


def test_what_may_repeat_becomes_an_array_even_if_it_does_not():
    transaction = one_payment("<RmtInf><Ustrd>a</Ustrd></RmtInf><Cdtr><PstlAdr><AdrLine>x</AdrLine></PstlAdr></Cdtr>")[2]
    assert transaction == {"RmtInf": {"Ustrd": ["a"]}, "Cdtr": {"PstlAdr": {"AdrLine": ["x"]}}}


def test_other_identifications_repeat_for_a_party_but_not_for_an_account():
    party = "<Cdtr><Id><OrgId><Othr><Id>1</Id></Othr></OrgId></Id></Cdtr>"
    transaction = one_payment(f"{party}<CdtrAcct><Id><Othr><Id>2</Id></Othr></Id></CdtrAcct>")[2]
    assert transaction["Cdtr"]["Id"]["OrgId"]["Othr"] == [{"Id": "1"}]
    assert transaction["CdtrAcct"]["Id"]["Othr"] == {"Id": "2"}


def test_an_unforeseen_repetition_becomes_an_array_too():
    assert one_payment("<New>1</New><New>2</New><New>3</New>")[2] == {"New": ["1", "2", "3"]}


def test_umlauts_and_escaped_characters_arrive_as_they_are_meant():
    [payment] = read_payments(next(sample for sample in SAMPLES if "sepa" in sample.stem))
    initiation, _, transaction = decoded(payment)
    assert initiation["GrpHdr"]["InitgPty"]["Nm"] == "Möbelhaus Grünwald & Söhne GmbH"
    assert transaction["Cdtr"]["Nm"] == "Tischlerei Özdemir & Hübner OG <Wien>"


def test_a_byte_order_mark_another_encoding_and_a_prefix_change_nothing():
    plain = parse_payments(SAMPLE.encode(), name="plain")
    assert parse_payments(SAMPLE.encode("utf-8-sig"), name="marked") == plain
    assert parse_payments(SAMPLE.replace("UTF-8", "UTF-16").encode("utf-16"), name="utf-16") == plain
    prefixed = re.sub(r"<(/?)(?=[A-Z])", r"<\1any:", SAMPLE).replace("xmlns=", "xmlns:any=")
    assert parse_payments(prefixed.encode(), name="prefixed") == plain


def test_an_older_message_says_its_name():
    assert "MsgNmId" not in one_payment("<Amt/>")[0]
    older = one_payment("<Amt/>", namespace="urn:iso:std:iso:20022:tech:xsd:pain.001.001.03")[0]
    assert older == {"GrpHdr": {"MsgId": "m"}, "MsgNmId": "pain.001.001.03"}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "not well-formed"),
        (b"{}", "not well-formed"),
        (SAMPLE[: len(SAMPLE) // 2].encode(), "not well-formed"),
        (b"<a/>", "not a pain.001"),
        (document("", "urn:iso:std:iso:20022:tech:xsd:pain.002.001.10"), "not a pain.001"),
        (f'<Document xmlns="{NAMESPACE}"/>'.encode(), "no <CstmrCdtTrfInitn>"),
        (document("<PmtInf/>"), "no <GrpHdr>"),
        (document("<GrpHdr><MsgId>m</MsgId></GrpHdr>"), "no payment"),
        (document("<GrpHdr><MsgId>m</MsgId></GrpHdr><PmtInf>text</PmtInf>"), "no payment"),
        (b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "DTD"),
        (document("<GrpHdr>" + "<x>" * 3_000 + "</x>" * 3_000 + "</GrpHdr>"), "deeper than 64"),
        (b'<?xml version="1.0" encoding="no-such-code"?><a/>', "encoding"),
        (b"<a>\xff\xfe</a>", "not well-formed"),
        (document("", "x" * 5_000), "not a pain.001"),
        (document("<GrpHdr>" + f"<{'x' * 999}>" * 70 + f"</{'x' * 999}>" * 70 + "</GrpHdr>"), "deeper than 64"),
    ],
)
def test_what_is_no_pain001_is_refused_with_file_and_problem(content: bytes, problem: str):
    with pytest.raises(Pain001Refused) as refused:
        parse_payments(content, name="some/file.xml")
    assert str(refused.value).startswith("some/file.xml: ")
    assert problem in refused.value.problem
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 400


def test_a_file_that_is_not_there_is_refused_by_its_name(tmp_path: Path):
    with pytest.raises(Pain001Refused, match=r"nowhere\.xml: No such file"):
        read_payments(tmp_path / "nowhere.xml")


def test_every_real_file_gives_its_payments(shared_samples: Path):
    found = {path.stem: len(read_payments(path)) for path in sorted((shared_samples / "pain.001").glob("*.xml"))}
    assert found["pain001-001-09-five-transactions"] == 5
    assert found["pain001-001-03-six-payments"] == 6
    assert found["moov-001-03-gistfile1"] == 3
    assert found["moov-001-03-sepa_payment_naujas_1"] == 1
    assert len(found) >= 9


def test_an_encoding_with_an_endless_name_is_refused_in_a_line():
    with pytest.raises(Pain001Refused) as refused:
        parse_payments(b'<?xml version="1.0" encoding="UTF-' + b"9" * 5_000 + b'"?><Document/>', name="payments.xml")
    assert len(str(refused.value)) < 500
