from typing import Any

import pytest

from notification_service.payments.iso20022.complex_types import Type
from notification_service.payments.iso20022.pain002_schema import TYPES

AMOUNT = {"Ccy": "EUR", "value": "12.50"}


def conform(value: object, kind: Type) -> Any:
    return kind.conform(value)


def test_children_come_out_in_the_order_of_the_schema_whatever_the_order_they_came_in() -> None:
    party = {"CtryOfRes": "DE", "PstlAdr": {"Ctry": "DE", "TwnNm": "Köln"}, "Nm": "Who"}
    conformed = conform(party, TYPES["PartyIdentification135"])
    assert isinstance(conformed, dict)
    assert list(conformed) == ["Nm", "PstlAdr", "CtryOfRes"]
    assert list(conformed["PstlAdr"]) == ["TwnNm", "Ctry"]


def test_unknown_children_are_left_out() -> None:
    assert conform({"Nm": "Who", "Shoe": "42", "nm": "who"}, TYPES["PartyIdentification135"]) == {"Nm": "Who"}


def test_a_single_value_and_an_array_are_the_same_where_an_element_may_repeat() -> None:
    kind = TYPES["RemittanceInformation16"]
    assert conform({"Ustrd": "one"}, kind) == conform({"Ustrd": ["one"]}, kind) == {"Ustrd": ["one"]}


def test_of_too_many_occurrences_the_first_that_are_allowed_stay() -> None:
    lines = [f"line {n}" for n in range(9)]
    assert conform({"AdrLine": lines}, TYPES["PostalAddress24"]) == {"AdrLine": lines[:7]}


def test_occurrences_that_the_schema_refuses_do_not_count() -> None:
    assert conform({"AdrLine": ["", 1, None, "x" * 71, "good"]}, TYPES["PostalAddress24"]) == {"AdrLine": ["good"]}


def test_an_array_where_one_value_belongs_is_left_out() -> None:
    assert conform({"Nm": ["a", "b"], "CtryOfRes": "DE"}, TYPES["PartyIdentification135"]) == {"CtryOfRes": "DE"}


def test_the_first_valid_of_a_choice_is_taken_and_only_that_one() -> None:
    kind = TYPES["AccountIdentification4Choice"]
    both = {"Othr": {"Id": "1234"}, "IBAN": "DE75512108001245126162"}
    assert conform(both, kind) == {"IBAN": "DE75512108001245126162"}
    assert conform({**both, "IBAN": "no iban"}, kind) == {"Othr": {"Id": "1234"}}


def test_a_mandatory_text_that_is_missing_is_not_provided() -> None:
    conformed = conform({"Issr": "me"}, TYPES["GenericOrganisationIdentification1"])
    assert conformed == {"Id": "NOTPROVIDED", "Issr": "me"}


def test_a_mandatory_text_that_the_schema_refuses_is_not_provided() -> None:
    conformed = conform({"Id": "x" * 36, "Issr": "me"}, TYPES["GenericOrganisationIdentification1"])
    assert conformed == {"Id": "NOTPROVIDED", "Issr": "me"}


def test_nothing_is_not_provided_where_there_is_nothing_else_to_say() -> None:
    assert conform({"Othr": {}}, TYPES["FinancialInstitutionIdentification18"]) is None


def test_the_element_around_a_mandatory_value_that_has_no_placeholder_is_left_out() -> None:
    born = {"DtAndPlcOfBirth": {"BirthDt": "1980-02-30", "CityOfBirth": "Ulm", "CtryOfBirth": "DE"}, "Othr": {"Id": "1"}}
    assert conform(born, TYPES["PersonIdentification13"]) == {"Othr": [{"Id": "1"}]}
    assert conform({"ChanlTp": "", "Id": "1"}, TYPES["OtherContact1"]) is None


@pytest.mark.parametrize(
    ("kind", "older", "newer"),
    [
        ("FinancialInstitutionIdentification18", {"BIC": "DEUTDEFF"}, {"BICFI": "DEUTDEFF"}),
        ("OrganisationIdentification29", {"BICOrBEI": "DEUTDEFF"}, {"AnyBIC": "DEUTDEFF"}),
        ("DateAndDateTime2Choice", "2026-03-30", {"Dt": "2026-03-30"}),
        ("DateAndDateTime2Choice", "2026-03-30T10:00:00", {"DtTm": "2026-03-30T10:00:00"}),
        ("PostalAddress24", {"AdrTp": "HOME"}, {"AdrTp": {"Cd": "HOME"}}),
        ("RemittanceAmount2", {"DscntApldAmt": AMOUNT}, {"DscntApldAmt": [{"Amt": AMOUNT}]}),
        ("RemittanceAmount2", {"TaxAmt": [AMOUNT]}, {"TaxAmt": [{"Amt": AMOUNT}]}),
    ],
)
def test_the_shapes_of_version_03_become_those_of_version_09(kind: str, older: Any, newer: Any) -> None:
    assert conform(older, TYPES[kind]) == newer
    assert conform(newer, TYPES[kind]) == newer


def test_of_an_older_and_a_newer_name_the_newer_counts_if_it_is_valid() -> None:
    kind = TYPES["FinancialInstitutionIdentification18"]
    assert conform({"BIC": "AAAADEFF", "BICFI": "BBBBDEFF"}, kind) == {"BICFI": "BBBBDEFF"}
    assert conform({"BIC": "AAAADEFF", "BICFI": "bad"}, kind) == {"BICFI": "AAAADEFF"}


WRONG = [None, True, 0, 1.5, "", "text", [], [[]], [None], {}, {"value": {}}, {"value": []}, {"Nm": {}}]


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_no_type_raises_for_any_shape_of_json_and_its_own_output_is_a_fixed_point(wrong: Any) -> None:
    for kind in TYPES.values():
        conformed = conform(wrong, kind)
        assert conformed is None or conform(conformed, kind) == conformed


def test_nesting_of_400_is_left_out() -> None:
    deep: Any = "x"
    for _ in range(400):
        deep = {"Nm": deep, "Id": [deep]}
    assert conform({"Nm": deep, "CtryOfRes": "DE"}, TYPES["PartyIdentification135"]) == {"CtryOfRes": "DE"}
