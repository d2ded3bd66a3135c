import pytest

from notification_service.payments.notification_settings import (
    NotificationSettings,
    parse_notification_settings,
    split_information,
)
from resequencer.errors import ConfigurationError

HEADER = "process_flow_name,event_name,transaction_status,reason_code,additional_information"

SHIPPED = """
PaymentInitiationFlow PaymentReceived RCVD
PaymentInitiationFlow PaymentValidated ACTC
PaymentInitiationFlow PaymentAccepted ACCP
PaymentInitiationFlow PaymentPending PDNG
PaymentInitiationFlow SettlementStarted ACSP
PaymentInitiationFlow PaymentSettled ACSC
PaymentInitiationFlow PaymentCompleted ACCC
PaymentInitiationFlow PaymentRejected RJCT MS03
PaymentInitiationFlow PaymentCancelled CANC
FraudCheckFlow FraudCheckPassed ACCP
FraudCheckFlow FraudCheckFailed RJCT FR01
"""


def parse(*lines: str) -> NotificationSettings:
    return parse_notification_settings(lines, "settings.csv")


def refusal(*lines: str) -> str:
    with pytest.raises(ConfigurationError) as refused:
        parse(*lines)
    return str(refused.value)


def test_the_shipped_rows_are_those_of_the_contract(shipped_settings: NotificationSettings) -> None:
    rows = {(r.process_flow_name, r.event_name, r.transaction_status, r.reason_code or "") for r in shipped_settings}
    assert rows == {tuple((line + " ").split(" ")[:4]) for line in SHIPPED.strip().splitlines()}


def test_a_row_is_found_by_flow_and_event() -> None:
    settings = parse(HEADER, "F,E,RJCT,MS03,because")
    found = settings.find("F", "E")
    assert found is not None
    assert (found.transaction_status, found.reason_code, found.additional_information) == ("RJCT", "MS03", ("because",))
    assert settings.find("E", "F") is settings.find("F", None) is settings.find(None, "E") is None


def test_a_byte_order_mark_crlf_blank_lines_and_spaces_are_tolerated() -> None:
    settings = parse(f"\ufeff{HEADER}\r\n", "\r\n", " F , E ,ACCP, , \r\n", ",,,,\r\n")
    assert [(r.process_flow_name, r.event_name, r.reason_code) for r in settings] == [("F", "E", None)]


def test_a_quoted_header_after_a_byte_order_mark_is_a_header() -> None:
    quoted = ",".join(f'"{name}"' for name in HEADER.split(","))
    assert len(parse(f"\ufeff{quoted}", "F,E,ACCP,,")) == 1


def test_a_quoted_text_may_hold_commas_quotes_and_line_breaks() -> None:
    (row,) = parse(HEADER, 'F,E,ACCP,,"one, ""two""\n', 'three"\n')
    assert row.additional_information == ('one, "two" three',)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], "settings.csv:1: the file is empty"),
        (["flow,event,status"], "settings.csv:1: the header is 'flow,event,status'; it must be process_flow_name,"),
        ([HEADER, "F,E,ACCP"], "settings.csv:2: 3 cells instead of 5 in 'F,E,ACCP'"),
        ([HEADER, "F,E,ACCP,,a,b"], "settings.csv:2: 6 cells instead of 5"),
        ([HEADER, "F,E,ACCP,,", "", "F,E,RJCT,,"], "settings.csv:4: a second row for 'F,E'; keep one"),
        ([HEADER, "F,E,DONE,,"], "settings.csv:2: transaction_status 'DONE' is no ISO code; one of ACCC ACCP"),
        ([HEADER, "F,E,PART,,"], "settings.csv:2: transaction_status 'PART'"),
        ([HEADER, "F,E,,,"], "settings.csv:2: transaction_status ''"),
        ([HEADER, "F,E,rjct,,"], "settings.csv:2: transaction_status 'rjct'"),
        ([HEADER, "F,E,RJCT,XXXX,"], "settings.csv:2: reason_code 'XXXX'"),
        (
            [HEADER, "F,E,RJCT,NARR,"],
            "settings.csv:2: reason_code 'NARR' is a narrative, and additional_information is empty; ISO 20022 demands it there",
        ),
        ([HEADER, 'F,E,RJCT,NARR,"  "'], "settings.csv:2: reason_code 'NARR' is a narrative"),
        ([HEADER, ",E,RJCT,,"], "settings.csv:2: process_flow_name '' and event_name 'E' must not be empty"),
        ([HEADER, 'F,E,"RJCT"x,,'], "settings.csv:2: not CSV"),
        ([HEADER, 'F,E,RJCT,,"open'], "settings.csv:2: not CSV"),
    ],
)
def test_what_is_wrong_is_refused_with_its_line_its_value_and_the_remedy(lines: list[str], expected: str) -> None:
    assert refusal(*lines).startswith(expected)


@pytest.mark.parametrize(
    "lines",
    [
        ["x" * 500],
        [HEADER, "\x1b[2J,E,ACCP,,", "\x1b[2J,E,ACCP,,"],
        [HEADER, "F,E,ACCP,," + ",x" * 500],
        [HEADER, "F" * 500 + ",,ACCP,,"],
        [HEADER, "F,E," + "A" * 500 + ",,"],
        [HEADER, "F,E,RJCT," + "A" * 500 + ","],
    ],
)
def test_a_refusal_of_whatever_value_is_one_printable_line(lines: list[str]) -> None:
    assert refusal(*lines).isprintable()
    assert len(refusal(*lines)) < 400


def test_additional_information_is_split_at_words_to_105_characters() -> None:
    text = " ".join(f"word{n:03}" for n in range(100))
    lines = split_information(text)
    assert max(map(len, lines)) <= 105
    assert " ".join(lines) == text


def test_a_word_longer_than_a_line_is_split_within() -> None:
    lines = split_information("a " + "x" * 300)
    assert max(map(len, lines)) <= 105
    assert "".join(lines).replace(" ", "") == "a" + "x" * 300


def test_a_hyphen_is_no_place_to_split_at() -> None:
    assert split_information("y" * 99 + " well-known") == ("y" * 99, "well-known")


def test_no_text_makes_no_line() -> None:
    assert split_information("") == split_information("  \n") == ()


def test_characters_that_xml_forbids_are_replaced_in_additional_information() -> None:
    assert split_information("a\x01b") == ("a\ufffdb",)
