"""The rules of each lookup: how a row becomes keys and a value, and which rows are refused."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from pyspark.sql import DataFrame

from notification_service.jobs.lookups.reading import bank_registry, project_codes
from notification_service.jobs.lookups.specs import SPECS
from notification_service.lookups.shapes import CUSTOMERS, INSTITUTIONS, REASONS, SETTINGS

RowsOf = Callable[..., DataFrame]
Keyed = list[tuple[str | None, list[str] | None, list[str | None] | None]]


@pytest.fixture
def keyed_rows(rows_of: RowsOf) -> Callable[..., Keyed]:
    """Return for each row its flaw, or its keys (parts joined by a bar) and its value."""

    def keyed_rows(name: str, *rows: Mapping[str, object], reasons: DataFrame | None = None) -> Keyed:
        spec = SPECS[name]
        found = spec.keyed(rows_of(spec, *rows), reasons).orderBy("line").collect()
        return [
            (each.flaw, None, None)
            if each.flaw is not None
            else (None, [key.replace("\x1f", "|") for key in each["keys"]], json.loads(each.value))
            for each in found
        ]

    return keyed_rows


def row(**cells: Any) -> dict[str, Any]:
    return {"process_flow_name": "F", "event_name": "E", "transaction_status": "ACCP"} | cells


def flaws(made: Keyed) -> list[str | None]:
    return [flaw for flaw, _, _ in made]


def test_a_setting_is_found_by_entity_flow_and_event(keyed_rows: Callable[..., Keyed], rows_of: RowsOf) -> None:
    codes = rows_of(SPECS[REASONS], {"code": "MS03"}, {"code": "NARR", "definition": "Reason is provided as narrative."})
    made = keyed_rows(
        SETTINGS,
        row(),
        row(processing_entity="BANK_001", reason_code="MS03", additional_information='Said "so", at last', suppressed="Yes"),
        row(suppressed="no", valid_from="2026-03-28"),
        row(reason_code="NARR", additional_information="Because"),
        row(reason_code="NARR", suppressed="yes"),
        row(process_flow_name=None),
        row(event_name=None),
        row(transaction_status="XXXX"),
        row(transaction_status=None),
        row(reason_code="XX99"),
        row(reason_code="NARR"),
        row(suppressed="maybe"),
        row(valid_from="28.03.2026"),
        row(event_name="E" * 600),
        row(event_name="E\x1fE"),
        row(flaw="not UTF-8"),
        reasons=codes,
    )
    assert made[:5] == [
        (None, ["|F|E"], ["ACCP", None, None, None]),
        (None, ["BANK_001|F|E"], ["ACCP", "MS03", 'Said "so", at last', "yes"]),
        (None, ["|F|E"], ["ACCP", None, None, None]),
        (None, ["|F|E"], ["ACCP", "NARR", "Because", None]),
        (None, ["|F|E"], ["ACCP", "NARR", None, "yes"]),
    ]
    assert flaws(made[5:]) == [
        "process_flow_name is empty",
        "event_name is empty",
        "transaction_status 'XXXX' is no ISO code",
        "transaction_status '' is no ISO code",
        "reason_code 'XX99' is in no set of status reasons",
        "reason_code 'NARR' is a narrative, and additional_information is empty",
        "suppressed 'maybe' is neither yes nor no",
        "valid_from '28.03.2026' is no day (2026-03-28)",
        "a key of more than 511 bytes",
        "a control character",
        "not UTF-8",
    ]


def test_a_reason_is_found_by_its_code(keyed_rows: Callable[..., Keyed]) -> None:
    made = keyed_rows(REASONS, {"code": "AC01", "definition": "Words"}, {"code": "MS03", "name": "Name"}, {"code": "bad"}, {})
    assert made[:2] == [(None, ["AC01"], [None, "Words"]), (None, ["MS03"], ["Name", None])]
    assert flaws(made[2:]) == ["code 'bad' is no code", "code '' is no code"]


def test_an_institution_is_found_by_bic_and_by_national_code(keyed_rows: Callable[..., Keyed]) -> None:
    bank = {"country": "DE", "name": "Bank", "bic": "cobadeffxxx", "bank_code": "37040044"}
    value = ["Bank", "COBADEFFXXX", "DE"]
    made = keyed_rows(
        INSTITUTIONS,
        bank,
        bank | {"kind": "bank"},
        bank | {"kind": "bic"},
        bank | {"bank_code": None},
        {"country": "DE", "kind": "iban", "begin": "0", "end": "8"},
        bank | {"country": "de"},
        bank | {"name": None},
        bank | {"bic": "COBA"},
        bank | {"kind": "other"},
        {"country": "DE", "name": "Neither"},
        {"country": "DE", "kind": "iban", "begin": "8", "end": "0"},
    )
    assert made[:5] == [
        (None, ["bank|DE|37040044", "bic|COBADEFFXXX"], value),
        (None, ["bank|DE|37040044"], value),
        (None, ["bic|COBADEFFXXX"], value),
        (None, ["bic|COBADEFFXXX"], value),
        (None, ["iban|DE"], ["0", "8"]),
    ]
    assert flaws(made[5:]) == [
        "country 'de' is no country",
        "name is empty",
        "bic 'COBA' is no BIC",
        "kind 'other' is none of bank, bic, iban",
        "no key",
        "begin '8' is not before end '0' ",
    ]


def test_a_customer_is_found_by_party_and_by_account(keyed_rows: Callable[..., Keyed]) -> None:
    made = keyed_rows(
        CUSTOMERS,
        {"initiating_party": "P1", "account": "DE89 3704 0044 0532 0130 00", "processing_entity": "BANK_001"},
        {"account": "1234", "language": "de-AT", "channel": "e-mail", "statuses": "ACSC; RJCT,PDNG", "valid_from": "2026-03-28"},
        {"language": "de"},
        {"account": "1", "language": "deutsch!"},
        {"account": "1", "channel": "by post"},
        {"account": "1", "statuses": "ACSC XXXX"},
        {"account": "1", "valid_from": "2026-03-28Tgarbage"},
        {"account": "1", "valid_from": "2026-03"},
    )
    assert made[:2] == [
        (None, ["party|P1", "account|DE89370400440532013000"], ["BANK_001", None, None, None, None]),
        (None, ["account|1234"], [None, "de-AT", "e-mail", "ACSC RJCT PDNG", "2026-03-28"]),
    ]
    assert flaws(made[2:]) == [
        "neither initiating_party nor account",
        "language 'deutsch!' is no language (de, de-AT)",
        "channel 'by post' is no channel: 1 to 35 letters, digits, dots, underscores and hyphens",
        "statuses 'ACSC XXXX' are not all ISO codes",
        "valid_from '2026-03-28Tgarbage' is no day (2026-03-28)",
        "valid_from '2026-03' is no day (2026-03-28)",
    ]


def test_an_iban_is_one_key_in_whatever_case_and_another_account_stays_as_it_is(keyed_rows: Callable[..., Keyed]) -> None:
    written = ("de89 3704 0044 0532 0130 00", "GB82west12345698765432", "acc-17a", "DE89")
    made = keyed_rows(CUSTOMERS, *({"account": each, "valid_from": "2026-03-28 10:00:00.5"} for each in written))
    assert [keys for _, keys, _ in made] == [
        ["account|DE89370400440532013000"],
        ["account|GB82WEST12345698765432"],
        ["account|acc-17a"],
        ["account|DE89"],
    ]


def test_the_registry_names_banks_by_the_bics_own_country() -> None:
    listed = list(bank_registry())
    parts = {"bank": ("country", "bank_code"), "bic": ("bic",), "iban": ("country",)}
    keys = [(row["kind"], *(row[part] for part in parts[str(row["kind"])])) for row in listed]
    assert len(set(keys)) == len(keys)
    (commerzbank,) = (row for row in listed if row["kind"] == "bic" and row["bic"] == "COBADEFFXXX")
    assert commerzbank["country"] == "DE"
    (german,) = (row for row in listed if row["kind"] == "iban" and row["country"] == "DE")
    assert (german["begin"], german["end"]) == ("0", "8")


def test_the_projects_own_codes_are_bare() -> None:
    assert {"code": "MS03"} in list(project_codes())
