"""The report on a group: a pain.002.001.10 without transactions."""

from base64 import b32encode
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest
from harness.group_stage import HOUR, KEY, PARTY, GroupStage, document_in, instruction, message, report_in
from msgspec.structs import replace

from guardian.headers import texts_of
from notification_service.aggregation.core import Completion, Slot
from resequencer.clock import instant_text

NAMESPACE = "{urn:iso:std:iso:20022:tech:xsd:pain.002.001.10}"


def message_id(number: int) -> str:
    return b32encode(sha256(f"{KEY}\0{number}".encode()).digest())[:32].decode()


def whole(**settings: Any) -> tuple[GroupStage, Completion]:
    """Return the report on a message of three payments in two payment informations, and its stage."""
    stage = GroupStage(**settings)
    stage.fields = {"original": message(3, "30.50"), "entity": "DE", "currency": "EUR"}
    stage.say("a", "ACCC", amount="10", instruction={"OrgnlPmtInfId": "PMT-2", "OrgnlNbOfTxs": "1", "OrgnlCtrlSum": "10"})
    stage.say("b", "ACCC", amount="20.25", instruction={"OrgnlPmtInfId": "PMT-1"})
    (report,) = stage.say("c", "RJCT", amount="0.25", instruction={"OrgnlPmtInfId": "PMT-1"})
    return stage, report


def test_it_says_how_many_payments_have_which_status_in_the_order_of_the_schema() -> None:
    stage, report = whole()
    content = report_in(report)
    assert content == {
        "GrpHdr": {"MsgId": message_id(1), "CreDtTm": instant_text(stage.now), "InitgPty": PARTY},
        "OrgnlGrpInfAndSts": {
            "OrgnlMsgId": "MSG-1",
            "OrgnlMsgNmId": "pain.001.001.09",
            "OrgnlCreDtTm": "2026-03-28T10:00:00Z",
            "OrgnlNbOfTxs": "3",
            "OrgnlCtrlSum": "30.50",
            "GrpSts": "PART",
            "NbOfTxsPerSts": [
                {"DtldNbOfTxs": "2", "DtldSts": "ACCC", "DtldCtrlSum": "30.25"},
                {"DtldNbOfTxs": "1", "DtldSts": "RJCT", "DtldCtrlSum": "0.25"},
            ],
        },
        "OrgnlPmtInfAndSts": [
            {
                "OrgnlPmtInfId": "PMT-1",
                "PmtInfSts": "PART",
                "NbOfTxsPerSts": [{"DtldNbOfTxs": "1", "DtldSts": "ACCC"}, {"DtldNbOfTxs": "1", "DtldSts": "RJCT"}],
            },
            {
                "OrgnlPmtInfId": "PMT-2",
                "OrgnlNbOfTxs": "1",
                "OrgnlCtrlSum": "10",
                "PmtInfSts": "ACCC",
                "NbOfTxsPerSts": [{"DtldNbOfTxs": "1", "DtldSts": "ACCC"}],
            },
        ],
    }
    assert list(content["OrgnlGrpInfAndSts"])[-2:] == ["GrpSts", "NbOfTxsPerSts"]
    assert list(content["OrgnlPmtInfAndSts"][1]) == [
        "OrgnlPmtInfId",
        "OrgnlNbOfTxs",
        "OrgnlCtrlSum",
        "PmtInfSts",
        "NbOfTxsPerSts",
    ]


def test_its_record_has_the_party_as_key_and_headers_that_tell_the_report() -> None:
    _, report = whole()
    assert report.key == PARTY["Nm"].encode()
    assert texts_of(report.headers) == {
        "notification-id": message_id(1),
        "group-id": KEY,
        "group-total": "3",
        "processing-entity": "DE",
        "group-report": "1",
        "group-status": "PART",
    }


def test_each_report_of_a_group_has_its_own_id() -> None:
    stage, _ = whole()
    stage.say("a", "CANC", amount="10")
    (amended,) = stage.wait(HOUR)
    assert report_in(amended)["GrpHdr"]["MsgId"] == message_id(2)
    assert texts_of(amended.headers)["notification-id"] == message_id(2)


def test_one_payment_information_alone_says_no_more_than_the_group(stage: GroupStage) -> None:
    (report,) = stage.say("a", "ACCC", original=message(1), instruction="PMT-1")
    assert "OrgnlPmtInfAndSts" not in report_in(report)


@pytest.mark.parametrize("stated", [("3", None), ("1", None), (None, "9"), ("2", "10.01")])
def test_a_payment_information_that_contradicts_what_it_holds_has_no_status(
    stage: GroupStage, stated: tuple[str | None, str | None]
) -> None:
    """One that holds two payments of 10 together, in a message of three."""
    stage.fields = {"original": message(3), "amount": "5"}
    stage.say("a", "ACCC", instruction=instruction("PMT-1", "1", "5.00"))
    stage.say("b", "ACCC", instruction=instruction("PMT-2", *stated))
    (report,) = stage.say("c", "ACCC", instruction=instruction("PMT-2", *stated))
    right, wrong = report_in(report)["OrgnlPmtInfAndSts"]
    assert right["PmtInfSts"] == "ACCC"
    assert "PmtInfSts" not in wrong
    assert report_in(report)["OrgnlGrpInfAndSts"]["GrpSts"] == "ACCC"


def test_what_cannot_be_compared_contradicts_nothing(stage: GroupStage) -> None:
    stage.fields = {"original": message(2)}
    stage.say("a", "ACCC", amount="5", instruction=instruction("PMT-1", "x", "y"))
    (report,) = stage.say("b", "ACCC", instruction=instruction("PMT-2", "1", "5"))
    assert [each["PmtInfSts"] for each in report_in(report)["OrgnlPmtInfAndSts"]] == ["ACCC", "ACCC"]


def test_a_head_that_was_begun_without_sums_of_payment_informations_is_read_on(stage: GroupStage) -> None:
    """As the baseline wrote it. Which amounts its members had is not known there."""
    stage.fields = {"original": message(2), "amount": "5"}
    stage.say("a", "ACCC", instruction=instruction("PMT-1", "1", "9"))
    head = stage.values.stored[Slot(KEY)]
    before = head.body.replace(b',"total":"5"}', b"}")
    assert before != head.body
    stage.values.stored[Slot(KEY)] = replace(head, body=before)
    (report,) = stage.say("b", "ACCC", instruction=instruction("PMT-2", "1", "5"))
    assert [each["PmtInfSts"] for each in report_in(report)["OrgnlPmtInfAndSts"]] == ["ACCC", "ACCC"]


def test_without_a_total_a_party_and_an_entity_these_are_left_out(stage: GroupStage) -> None:
    stage.say("a", "ACCC", original={"OrgnlMsgId": "M", "OrgnlMsgNmId": "N"}, initiatingParty=None)
    (report,) = stage.close()
    assert report.key == b"NOTPROVIDED"
    assert texts_of(report.headers).keys() == {"notification-id", "group-id", "group-report", "closed-by"}
    assert report_in(report)["OrgnlGrpInfAndSts"] == {
        "OrgnlMsgId": "M",
        "OrgnlMsgNmId": "N",
        "NbOfTxsPerSts": [{"DtldNbOfTxs": "1", "DtldSts": "ACCC"}],
    }


@pytest.mark.parametrize("has_party", [True, False])
def test_an_incomplete_report_has_no_status_anywhere(stage: GroupStage, has_party: bool) -> None:
    stage.fields = {"initiatingParty": PARTY if has_party else None, "original": message(3)}
    stage.say("a", "ACCC", instruction="PMT-1")
    stage.say("b", "ACCC", instruction="PMT-2")
    (report,) = stage.wait(48 * HOUR)
    content = report_in(report)
    assert "GrpSts" not in content["OrgnlGrpInfAndSts"]
    assert [each.keys() for each in content["OrgnlPmtInfAndSts"]] == [{"OrgnlPmtInfId", "NbOfTxsPerSts"}] * 2


def test_a_sum_of_more_digits_than_the_schema_has_is_left_out(stage: GroupStage) -> None:
    stage.fields = {"amount": "999999999999999.99"}
    for unit in ("a", "b"):
        stage.say(unit, "ACSP")
    stage.fields = {"amount": "9" * 18, "original": message(2)}
    reports = [report for unit in "ab" for report in stage.say(unit, "ACCC")]
    assert report_in(reports[0])["OrgnlGrpInfAndSts"]["NbOfTxsPerSts"] == [{"DtldNbOfTxs": "2", "DtldSts": "ACCC"}]


def test_invalid_texts_of_the_message_are_left_out_or_not_provided(
    stage: GroupStage, assert_valid: Callable[[Completion], None]
) -> None:
    original = {"OrgnlMsgId": "x" * 36, "OrgnlMsgNmId": "", "OrgnlCreDtTm": "today", "OrgnlNbOfTxs": "1", "OrgnlCtrlSum": "1,5"}
    (report,) = stage.say("a", "ACCC", original=original, initiatingParty={"Nm": "\x00<&>", "Id": 7})
    assert_valid(report)
    assert report_in(report)["OrgnlGrpInfAndSts"]["OrgnlMsgId"] == "NOTPROVIDED"
    assert report_in(report)["OrgnlGrpInfAndSts"]["OrgnlMsgNmId"] == "NOTPROVIDED"


def test_as_XML_it_is_the_same_document(assert_valid: Callable[[Completion], None]) -> None:
    _, report = whole(target_type="report-xml")
    assert_valid(report)
    document = document_in(report)
    assert [each.text for each in document.iter(f"{NAMESPACE}DtldSts")] == ["ACCC", "RJCT", "ACCC", "RJCT", "ACCC"]
    assert document.find(f".//{NAMESPACE}InitgPty/{NAMESPACE}Nm").text == PARTY["Nm"]


def test_another_target_type_is_none() -> None:
    with pytest.raises(KeyError):
        GroupStage(target_type="produced-report")


def test_it_follows_from_the_values_before_and_after_alone(stage: GroupStage) -> None:
    stage.say("a", "ACCC")
    old = stage.values.stored[(KEY, "")].body  # type: ignore[index]
    (report,) = stage.say("b", "ACCC")
    new = stage.values.stored[(KEY, "")].body  # type: ignore[index]
    aggregate = stage.processor._aggregate
    assert list(aggregate.on_value(KEY, old, new, stage.now)) == [report]
    assert list(aggregate.on_value(KEY, new, new, stage.now)) == []
    assert list(aggregate.on_value(KEY, new, None, stage.now)) == []
    assert list(aggregate.on_value(KEY, None, old, stage.now)) == []
