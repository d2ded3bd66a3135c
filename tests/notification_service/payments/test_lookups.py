"""What lookups add to a notification."""

import json
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import msgspec
import pytest

from notification_service.lookups.shapes import ANY, CUSTOMERS, INSTITUTIONS, REASONS, SETTINGS, key_of
from notification_service.payments.enrichment import Lookups
from notification_service.payments.envelope import DataEnvelope
from notification_service.payments.payment_data import PaymentData
from notification_service.payments.settings import HandlerSettings, make_handler
from resequencer.handler import Handled

from .conftest import NOW, UNMARKED, envelope_of, payment_data

FLOW = "PaymentInitiationFlow"
IBAN = "DE89370400440532013000"
OTHER_IBAN = "AT611904300234573201"


class Tables:
    """Tables as in a release: values are arrays of texts and nulls."""

    version = "20261121T000000000Z"

    def __init__(self, **tables: Mapping[tuple[str, ...], list[str | None]]) -> None:
        self.rows = {
            name.replace("_", "-"): {key_of(*key): msgspec.json.encode(value) for key, value in rows.items()}
            for name, rows in tables.items()
        }

    def find(self, table: str, key: bytes) -> bytes | None:
        return self.rows.get(table, {}).get(key)


SETTINGS_ROWS: dict[tuple[str, ...], list[str | None]] = {
    (ANY, FLOW, "PaymentAccepted"): ["ACCP", None, None, None],
    (ANY, FLOW, "PaymentRejected"): ["RJCT", "MS03", None, None],
    (ANY, FLOW, "PaymentPending"): ["PDNG", None, "Ours", None],
    (ANY, FLOW, "PaymentReceived"): ["RCVD", None, None, "yes"],
    ("BANK_002", FLOW, "PaymentAccepted"): ["ACSP", None, "At bank two", None],
    ("BANK_002", FLOW, "PaymentRejected"): ["RJCT", "MS03", "Own words", None],
}
REASON_ROWS: dict[tuple[str, ...], list[str | None]] = {
    ("MS03",): ["NotSpecifiedReasonAgentGenerated", "Reason has not been specified by agent."],
    ("AC01",): [None, "Account number is invalid or missing."],
    ("NARR",): ["Narrative", "Reason is provided as narrative information in the additional reason information."],
}
INSTITUTION_ROWS: dict[tuple[str, ...], list[str | None]] = {
    ("iban", "DE"): ["0", "8"],
    ("bank", "DE", "37040044"): ["Commerzbank Köln", "COBADEFFXXX", "DE"],
    ("bic", "COBADEFFXXX"): ["Commerzbank", "COBADEFFXXX", "DE"],
    ("bic", "DEUTDEFF"): ["N" * 200, "DEUTDEFF", "DE"],
}


def handled(
    data: PaymentData, *events: tuple[str | None, str | None, str | None], entity: str | None = None, **tables: Any
) -> Handled:
    known = Lookups(Tables(**({"notification_settings": SETTINGS_ROWS} | tables)))
    envelope: DataEnvelope = msgspec.structs.replace(envelope_of(*events), entity=entity)
    return make_handler(HandlerSettings(), known).handle(envelope, data, UNMARKED, NOW)


def payment(instruction: Any = None, transfer: Any = None, header: Any = None) -> PaymentData:
    return payment_data({"GrpHdr": {"MsgId": "M", **(header or {})}}, instruction or {}, transfer or {})


def status_of(made: Handled) -> dict[str, Any]:
    (notification,) = made.notifications
    status: dict[str, Any] = json.loads(notification.value)["CstmrPmtStsRpt"]["OrgnlPmtInfAndSts"][0]["TxInfAndSts"][0]
    return status


def headers_of(made: Handled) -> dict[str, str]:
    (notification,) = made.notifications
    return {name: value.decode() for name, value in notification.headers}


def test_a_notification_says_with_which_version_it_was_made() -> None:
    assert headers_of(handled(payment(), ("PaymentAccepted", FLOW, None)))["lookups-version"] == Tables.version


@pytest.mark.parametrize(
    ("entity", "status", "information"), [("BANK_002", "ACSP", ["At bank two"]), ("BANK_001", "ACCP", None), (None, "ACCP", None)]
)
def test_an_entitys_own_row_counts_before_that_of_any(entity: str | None, status: str, information: list[str] | None) -> None:
    reported = status_of(handled(payment(), ("PaymentAccepted", FLOW, None), entity=entity))
    assert reported["TxSts"] == status
    assert reported.get("StsRsnInf", [{}])[0].get("AddtlInf") == information


def test_a_suppressed_event_and_one_without_a_row_make_no_notification_and_are_counted() -> None:
    made = handled(payment(), ("PaymentReceived", FLOW, None), ("Unheard", FLOW, None), (None, None, None))
    assert made == Handled((), unmatched=2, suppressed=1)


@pytest.mark.parametrize(
    ("entity", "reason", "information"),
    [
        (None, None, ["NotSpecifiedReasonAgentGenerated: Reason has not been specified by agent."]),
        (None, "AC01", ["Account number is invalid or missing."]),
        (None, "AM04", None),
        (None, "HOUSE-1", None),
        ("BANK_002", "AC01", ["Own words"]),
        (None, "NARR", ["NOTPROVIDED"]),
        ("BANK_002", "NARR", ["Own words"]),
    ],
)
def test_a_reason_is_said_in_words_where_the_setting_has_none(
    entity: str | None, reason: str | None, information: list[str] | None
) -> None:
    reported = status_of(handled(payment(), ("PaymentRejected", FLOW, reason), entity=entity, status_reasons=REASON_ROWS))
    assert reported["StsRsnInf"][0].get("AddtlInf") == information


def test_words_are_split_as_the_schema_wants_them() -> None:
    rows = {("MS03",): [None, "word " * 60]}
    reported = status_of(handled(payment(), ("PaymentRejected", FLOW, None), status_reasons=rows))
    lines = reported["StsRsnInf"][0]["AddtlInf"]
    assert len(lines) > 1
    assert all(len(line) <= 105 for line in lines)


NOT_PROVIDED = {"FinInstnId": {"Othr": {"Id": "NOTPROVIDED"}}}


@pytest.mark.parametrize("agent", [None, NOT_PROVIDED])
def test_an_agent_that_was_not_said_is_found_by_the_iban(agent: Any) -> None:
    debtor = {"DbtrAcct": {"Id": {"IBAN": IBAN}}, **({"DbtrAgt": agent} if agent else {})}
    made = status_of(handled(payment(debtor), ("PaymentAccepted", FLOW, None), institutions=INSTITUTION_ROWS))
    assert made["OrgnlTxRef"]["DbtrAgt"] == {"FinInstnId": {"BICFI": "COBADEFFXXX", "Nm": "Commerzbank Köln"}}


def test_both_sides_are_filled_each_by_its_own_account() -> None:
    made = status_of(
        handled(
            payment({"DbtrAcct": {"Id": {"IBAN": OTHER_IBAN}}}, {"CdtrAcct": {"Id": {"IBAN": IBAN}}}),
            ("PaymentAccepted", FLOW, None),
            institutions=INSTITUTION_ROWS,
        )
    )
    assert "DbtrAgt" not in made["OrgnlTxRef"]
    assert made["OrgnlTxRef"]["CdtrAgt"]["FinInstnId"]["BICFI"] == "COBADEFFXXX"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"FinInstnId": {"BICFI": "COBADEFF"}}, {"FinInstnId": {"BICFI": "COBADEFF", "Nm": "Commerzbank"}}),
        (
            {"FinInstnId": {"BICFI": "COBADEFF123"}, "BrnchId": {"Id": "B1"}},
            {"FinInstnId": {"BICFI": "COBADEFF123", "Nm": "Commerzbank"}, "BrnchId": {"Id": "B1"}},
        ),
        ({"FinInstnId": {"BICFI": "COBADEFF", "Nm": "Own"}}, {"FinInstnId": {"BICFI": "COBADEFF", "Nm": "Own"}}),
        ({"FinInstnId": {"BICFI": "UNKNDEFF"}}, {"FinInstnId": {"BICFI": "UNKNDEFF"}}),
        ({"FinInstnId": {"BICFI": "DEUTDEFF"}}, {"FinInstnId": {"BICFI": "DEUTDEFF"}}),
        ({"FinInstnId": {"Nm": "Only a name"}}, {"FinInstnId": {"Nm": "Only a name"}}),
    ],
)
def test_what_was_said_of_an_agent_stays_and_a_name_is_added(given: Any, shown: Any) -> None:
    """A name that the schema refuses (DEUTDEFF's here) is left out."""
    data = payment({"DbtrAgt": given, "DbtrAcct": {"Id": {"IBAN": IBAN}}})
    made = status_of(handled(data, ("PaymentAccepted", FLOW, None), institutions=INSTITUTION_ROWS))
    assert made["OrgnlTxRef"]["DbtrAgt"] == shown


@pytest.mark.parametrize("account", [{"Othr": {"Id": "1234"}}, {"IBAN": "DE"}, {"IBAN": OTHER_IBAN}])
def test_an_account_of_an_unknown_bank_adds_nothing(account: Any) -> None:
    made = status_of(
        handled(payment({"DbtrAcct": {"Id": account}}), ("PaymentAccepted", FLOW, None), institutions=INSTITUTION_ROWS)
    )
    assert "DbtrAgt" not in made.get("OrgnlTxRef", {})


BY_PARTY: dict[tuple[str, ...], list[str | None]] = {("party", "P1"): ["BANK_002", "de", "email", "ACSP RJCT", "2026-01-01"]}
BY_ACCOUNT: dict[tuple[str, ...], list[str | None]] = {("account", IBAN): [None, None, "push", None, None]}
PARTIES = (
    {"InitgPty": {"Id": {"OrgId": {"Othr": [{"Id": "P0"}, {"Id": "P1"}]}}}},
    {"InitgPty": {"Id": {"PrvtId": {"Othr": [{"Id": "P1"}]}}}},
)


@pytest.mark.parametrize("header", PARTIES)
def test_a_customer_is_found_by_the_party_and_gives_entity_and_headers(header: Any) -> None:
    made = handled(payment(header=header), ("PaymentAccepted", FLOW, None), customers=BY_PARTY)
    assert status_of(made)["TxSts"] == "ACSP", "the row of the customer's entity"
    headers = headers_of(made)
    assert (headers["processing-entity"], headers["channel"], headers["language"]) == ("BANK_002", "email", "de")


def test_the_envelopes_own_entity_counts_before_the_customers() -> None:
    made = handled(payment(header=PARTIES[0]), ("PaymentAccepted", FLOW, None), entity="BANK_001", customers=BY_PARTY)
    assert made.suppressed == 1, "ACCP, which the customer does not want"


def test_a_status_that_the_customer_does_not_want_is_suppressed() -> None:
    made = handled(payment(header=PARTIES[0]), ("PaymentPending", FLOW, None), customers=BY_PARTY)
    assert made == Handled((), suppressed=1)


def test_a_customer_is_found_by_the_account_where_the_party_is_unknown() -> None:
    data = payment({"DbtrAcct": {"Id": {"IBAN": IBAN}}}, header={"InitgPty": {"Nm": "Another"}})
    headers = headers_of(handled(data, ("PaymentAccepted", FLOW, None), customers=BY_ACCOUNT))
    assert headers["channel"] == "push"
    assert "language" not in headers


def test_a_customer_is_found_by_an_iban_in_whatever_case() -> None:
    by_account: dict[tuple[str, ...], list[str | None]] = {
        ("account", "GB82WEST12345698765432"): [None, None, "push", None, None]
    }
    for written in ("GB82WEST12345698765432", "GB82west12345698765432"):
        data = payment({"DbtrAcct": {"Id": {"IBAN": written}}})
        made = handled(data, ("PaymentAccepted", FLOW, None), customers=by_account)
        assert headers_of(made)["channel"] == "push", written


def test_the_tables_are_named_as_the_job_writes_them() -> None:
    assert {SETTINGS, REASONS, INSTITUTIONS, CUSTOMERS} == {
        "notification-settings", "status-reasons", "institutions", "customers"
    }  # fmt: skip


def test_any_lookup_is_asked_by_its_name_and_the_parts_of_its_key() -> None:
    lookups = Lookups(Tables(desks={("Flow", "a"): ["Desk", None]}))
    assert lookups.find("desks", "Flow", "a") == ("Desk", None)
    assert [lookups.find("desks", "Flow"), lookups.find("offices", "Flow", "a"), lookups.find("desks")] == [None, None, None]


def test_a_target_type_with_a_parameter_lookups_gets_those_of_the_version_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("users_targets")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    vars(module)["desk"] = lambda _, lookups: json.dumps(lookups.find("desks", "Flow")).encode()
    first, second = (
        Lookups(Tables(notification_settings=SETTINGS_ROWS, desks={("Flow",): [name]})) for name in ("first", "second")
    )
    handler = make_handler(HandlerSettings("users_targets:desk"), first)
    events = envelope_of(("PaymentAccepted", FLOW, None))
    for each, expected in ((handler, b'["first"]'), (handler.with_lookups(second), b'["second"]')):
        assert each.handle(events, payment(), UNMARKED, NOW).notifications[0].value == expected
