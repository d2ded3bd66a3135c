from typing import Any

import pytest

from notification_service.payments.iso20022.complex_types import Choice, Sequence
from notification_service.payments.iso20022.pain002_schema import TYPES
from notification_service.payments.iso20022.simple_types import Amount, JsonNumber, SimpleType, xml_text


def simple(name: str) -> SimpleType:
    kind = TYPES[name]
    assert not isinstance(kind, Sequence | Choice)
    return kind


def test_text_may_have_as_many_code_points_as_the_type_says_and_is_never_cut() -> None:
    assert simple("Max140Text").conform("ü" * 140) == "ü" * 140
    assert simple("Max140Text").conform("𝄞" * 140) == "𝄞" * 140
    assert simple("Max140Text").conform("ü" * 141) is None


def test_nothing_is_transliterated() -> None:
    assert simple("Max140Text").conform("Müller & Söhne <łódź> Ελλάς 漢字 😀") == "Müller & Söhne <łódź> Ελλάς 漢字 😀"


def test_blank_text_is_left_out() -> None:
    assert simple("Max35Text").conform("") is None
    assert simple("Max35Text").conform(" \t\n") is None


def test_each_character_that_xml_forbids_is_replaced() -> None:
    assert xml_text("a\x00b\x0bc\x1fd\ufffee\ufffff") == "a\ufffdb\ufffdc\ufffdd\ufffde\ufffdf"
    assert xml_text("\ud800") == "\ufffd"
    assert xml_text("tab\tline\nreturn\r\x85\u2028\U0010ffff\U0001f600") == "tab\tline\nreturn\r\x85\u2028\U0010ffff\U0001f600"


def test_no_number_becomes_a_text() -> None:
    assert simple("Max35Text").conform(1) is None
    assert simple("Max35Text").conform(JsonNumber("1.5")) is None


@pytest.mark.parametrize(
    "good", ["0", "12.50", "-3", "+3", ".5", "5.", "1" * 18, "000" + "1" * 18, "0." + "1" * 17, 7, JsonNumber("99.990")]
)
def test_a_decimal_number_is_accepted_in_its_own_digits(good: Any) -> None:
    assert simple("DecimalNumber").conform(good) == str(good)


@pytest.mark.parametrize(
    ("number", "plain"),
    [
        *(("1E+2", "100"), ("1e2", "100"), ("1E-2", "0.01"), ("1234E-2", "12.34"), ("-1.5e1", "-15"), ("1E17", "1" + "0" * 17)),
        *(("-0.0", "0.0"), ("0E5", "0"), ("-0e" + "9" * 1_000, "0"), ("1" + "0" * 1_000 + "E-1000", "1." + "0" * 1_000)),
    ],
)
def test_a_json_number_is_its_value_exactly_and_has_no_exponent(number: str, plain: str) -> None:
    assert simple("DecimalNumber").conform(JsonNumber(number)) == plain


@pytest.mark.parametrize(
    "bad",
    [
        "",
        ".",
        "-",
        "1e5",
        "1,5",
        "1 0",
        "NaN",
        "INF",
        "0x1",
        "١٢",
        "1" * 19,
        "0." + "1" * 18,
        10**18,
        pytest.param(10**5000, id="5001 digits"),
        True,
        JsonNumber("1E18"),
        JsonNumber("1E-18"),
        JsonNumber("1E" + "9" * 1_000),
        JsonNumber("1E-" + "9" * 1_000),
        JsonNumber("1." + "1" * 5_000 + "E-5000"),
        1.5,
    ],
)
def test_what_is_no_decimal_number_of_the_schema_is_left_out(bad: Any) -> None:
    assert simple("DecimalNumber").conform(bad) is None


def test_zeros_at_either_end_are_no_digits() -> None:
    assert simple("DecimalNumber").conform("0012.50" + "0" * 30) == "0012.50" + "0" * 30


def test_an_amount_has_a_currency_no_sign_and_five_fraction_digits() -> None:
    kind = simple("ActiveOrHistoricCurrencyAndAmount")
    assert isinstance(kind, Amount)
    assert kind.conform({"value": 12, "Ccy": "EUR", "x": 1}) == {"Ccy": "EUR", "value": "12"}
    assert kind.conform({"value": "0.00001", "Ccy": "XXX"}) == {"Ccy": "XXX", "value": "0.00001"}
    for value, currency in (("-1", "EUR"), ("0.000001", "EUR"), ("1", "eur"), ("1", None), (None, "EUR"), ("1", ["EUR"])):
        assert kind.conform({"value": value, "Ccy": currency}) is None
    assert kind.conform("12.50") is None


@pytest.mark.parametrize(
    "good", ["2024-02-29", "0001-01-01", "9999-12-31Z", "2026-03-30+01:00", "2026-03-30-14:00", " 2026-03-30\n"]
)
def test_a_day_of_the_calendar_is_a_date(good: str) -> None:
    assert simple("ISODate").conform(good) == good.strip()


@pytest.mark.parametrize(
    "bad",
    [
        "2026-02-29",
        "2026-13-01",
        "0000-01-01",
        "26-01-01",
        "2026-3-1",
        "2026-03-30+14:01",
        "2026-03-30T10:00:00",
        "٢٠٢٦-٠١-٠١",
        20260330,
        None,
    ],
)
def test_what_is_no_day_of_the_calendar_is_no_date(bad: Any) -> None:
    assert simple("ISODate").conform(bad) is None


@pytest.mark.parametrize("good", ["2026-03-30T10:00:00", "2026-03-30T23:59:59.123456789Z", "2026-03-30T00:00:00.5+05:30"])
def test_an_instant_with_or_without_a_zone_is_a_date_time(good: str) -> None:
    assert simple("ISODateTime").conform(good) == good


@pytest.mark.parametrize(
    "bad",
    [
        "2026-03-30",
        "2026-03-30T24:00:00",
        "2026-03-30T10:60:00",
        "2026-03-30 10:00:00",
        "2026-02-30T10:00:00",
        "2026-03-30T10:00:00.",
    ],
)
def test_what_is_no_instant_is_no_date_time(bad: str) -> None:
    assert simple("ISODateTime").conform(bad) is None


def test_an_indicator_may_be_a_json_boolean_and_comes_out_as_text() -> None:
    assert [simple("TrueFalseIndicator").conform(each) for each in (True, "true", False, "false", 1, "yes")] == [
        *("true", "true", "false", "false"),
        *(None, None),
    ]


def test_a_number_of_transactions_is_digits_only() -> None:
    kind = simple("Max15NumericText")
    assert [kind.conform(each) for each in ("1", "001", 7, "9" * 15)] == ["1", "001", "7", "9" * 15]
    assert [kind.conform(JsonNumber(each)) for each in ("1.0", "1E0", "12e1", "-0.0")] == ["1", "1", "120", "0"]
    assert [kind.conform(each) for each in ("", "-1", -1, "1.0", "1E0", "9" * 16, "²", "٣", True)] == [None] * 9
    assert [kind.conform(JsonNumber(each)) for each in ("1.5", "-1.0", "1E15", "1E-1")] == [None] * 4


def test_a_trailing_line_feed_escapes_no_pattern() -> None:
    assert simple("CountryCode").conform("DE\n") is None
    assert simple("ActiveOrHistoricCurrencyCode").conform("EUR\n") is None


def test_an_upper_case_uetr_is_refused_and_not_mended() -> None:
    kind = simple("UUIDv4Identifier")
    assert kind.conform("eb6305c9-1f7f-49de-aed0-16487c27b42d") is not None
    assert kind.conform("EB6305C9-1F7F-49DE-AED0-16487C27B42D") is None
    assert kind.conform("eb6305c9-1f7f-19de-aed0-16487c27b42d") is None
