"""Facts: each status of a payment, notified or not, with the group that the payment belongs to."""

import json
from hashlib import sha256
from io import StringIO
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from notification_service.payments.enrichment import SettingsAlone
from notification_service.payments.facts import LARGEST_PARTY_BYTES
from notification_service.payments.foreign_handler import ForeignHandler
from notification_service.payments.notification_settings import (
    NotificationSetting,
    NotificationSettings,
    parse_notification_settings,
)
from notification_service.payments.original import Originals
from notification_service.payments.port import Message
from notification_service.payments.settings import HandlerSettings, make_handler
from resequencer.errors import TooLarge
from resequencer.handler import Handled, Marks
from resequencer.notification import Fact, notification_id, short_digest
from tests.notification_service.payments.conftest import EXAMPLE, NOW, SETTINGS_FILE, UNMARKED, envelope_of, payment_data

FLOW = "PaymentInitiationFlow"
SETTLED = ("PaymentSettled", FLOW, None)
WITH_FACTS = HandlerSettings(makes_facts=True)
TRACE = (("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), ("tracestate", b"a=1"))
SHIPPED = parse_notification_settings(StringIO(SETTINGS_FILE.read_text(encoding="utf-8")), "settings")


def handled(came: Any, data: Any, marks: Marks = UNMARKED, settings: Any = SHIPPED, configured: Any = WITH_FACTS) -> Handled:
    return make_handler(configured, settings).handle(came, data, marks, NOW)


def fact_of(data: Any, entity: str | None = None, marks: Marks = UNMARKED) -> Fact:
    came = msgspec.structs.replace(envelope_of(SETTLED), entity=entity)
    (fact,) = handled(came, data, marks).facts
    return fact


def group_of(data: Any, entity: str | None = None) -> str | None:
    group = dict(fact_of(data, entity).headers).get("group-id")
    return None if group is None else group.decode()


def message_of(**header: Any) -> Any:
    """Make the payment data of the example with other fields in its group header; None takes a field out."""
    message, instruction, transfer = EXAMPLE
    changed = {name: value for name, value in (message["GrpHdr"] | header).items() if value is not None}
    return payment_data({"GrpHdr": changed}, instruction, transfer)


def amount_of(amount: Any) -> dict[str, Any]:
    message, instruction, transfer = EXAMPLE
    return json.loads(fact_of(payment_data(message, instruction, transfer | {"Amt": amount})).value)  # type: ignore[no-any-return]


def test_without_being_told_to_the_handler_makes_no_facts_and_no_headers_of_a_group() -> None:
    made = handled(envelope_of(SETTLED), payment_data(*EXAMPLE), configured=HandlerSettings())
    assert made.facts == ()
    assert not {"group-id", "group-total", "amount"} & {name for name, _ in made.notifications[0].headers}


def test_a_fact_has_the_key_of_its_group_and_the_headers_of_the_contract_in_its_order() -> None:
    came = msgspec.structs.replace(envelope_of(SETTLED), entity="BÄNK_001")
    came = msgspec.structs.replace(came, record=msgspec.structs.replace(came.record, headers=TRACE))
    made = handled(came, payment_data(*EXAMPLE), Marks("sequence:3", late=True, ordered=True))
    (fact,), (notification,) = made.facts, made.notifications
    assert fact.key == short_digest('BÄNK_001\x00{"Nm":"Müller & Söhne <GmbH>"}\x00MSG-1\x002026-03-28T10:00:00Z'.encode())
    assert fact.headers == (
        ("member", b"uow-1"),
        ("notification-id", notification_id("uow-1", "PaymentFlow|e0", 0).encode()),
        ("envelope-id", b"PaymentFlow|e0"),
        ("source-position", b"IPF_PROCESSING_DATA-3@42"),
        ("event-name", b"PaymentSettled"),
        ("process-flow-name", b"PaymentInitiationFlow"),
        ("transaction-status", b"ACSC"),
        ("processing-entity", "BÄNK_001".encode()),
        ("group-id", fact.key.encode()),
        ("group-total", b"1"),
        ("amount", b"12.50 EUR"),
        ("incomplete", b"sequence:3"),
        ("released-by", b"operator"),
        ("late", b"true"),
        *TRACE,
    )
    assert fact.origin == came.record.origin
    assert notification.headers == fact.headers[1:]


def test_its_value_is_one_line_of_json_with_what_the_report_repeats_of_the_message() -> None:
    fact = fact_of(payment_data(*EXAMPLE), "BANK_001", Marks("PAIN_001_PAYMENT_INSTRUCTION", late=True))
    assert b"\n" not in fact.value
    assert list(json.loads(fact.value).items()) == [
        ("type", "status"),
        ("unit", "uow-1"),
        ("status", "ACSC"),
        ("late", True),
        ("incomplete", "PAIN_001_PAYMENT_INSTRUCTION"),
        ("amount", "12.50"),
        ("currency", "EUR"),
        ("entity", "BANK_001"),
        (
            "original",
            {
                "OrgnlMsgId": "MSG-1",
                "OrgnlMsgNmId": "pain.001.001.09",
                "OrgnlCreDtTm": "2026-03-28T10:00:00Z",
                "OrgnlNbOfTxs": "1",
                "OrgnlCtrlSum": "12.50",
            },
        ),
        ("instruction", {"OrgnlPmtInfId": "PMT-1", "OrgnlNbOfTxs": "1", "OrgnlCtrlSum": "12.50"}),
        ("initiatingParty", {"Nm": "Müller & Söhne <GmbH>"}),
    ]


def test_the_id_of_a_group_stays_the_same_from_version_to_version() -> None:
    assert group_of(message_of()) == "SJJIR2O3UNBTLMFWFY752SEXENJN6O66"


def test_the_id_of_a_group_is_the_digest_that_the_contract_names() -> None:
    """`base32(sha256(...))`, cut to 32 characters, by the standard library."""
    from base64 import b32encode

    for name in (b"", b"a\x00b", bytes(range(256))):
        assert short_digest(name) == b32encode(sha256(name).digest()).decode()[:32]


def test_a_suppressed_status_is_a_fact_too() -> None:
    row = NotificationSetting(FLOW, "PaymentSettled", "ACSC", is_suppressed=True)
    made = handled(envelope_of(SETTLED), payment_data(*EXAMPLE), settings=NotificationSettings([row]))
    assert (made.notifications, made.suppressed) == ((), 1)
    (fact,) = made.facts
    assert json.loads(fact.value)["status"] == "ACSC"
    assert dict(fact.headers)["notification-id"].decode() == notification_id("uow-1", "PaymentFlow|e0", 0)


def test_what_the_settings_do_not_know_makes_no_fact_and_keeps_its_index() -> None:
    made = handled(envelope_of(("Nothing", FLOW, None), SETTLED, ("PaymentCompleted", FLOW, None)), payment_data(*EXAMPLE))
    assert made.unmatched == 1
    assert [json.loads(each.value)["status"] for each in made.facts] == ["ACSC", "ACCC"]
    ids = [dict(each.headers)["notification-id"].decode() for each in made.facts]
    assert ids == [notification_id("uow-1", "PaymentFlow|e0", index) for index in (1, 2)]


@pytest.mark.parametrize("message_id", [None, "NOTPROVIDED", " ", "x" * 36, 5])
def test_a_message_without_an_id_of_its_own_is_no_group_and_its_facts_have_the_key_of_their_unit(message_id: Any) -> None:
    fact = fact_of(message_of(MsgId=message_id), "BANK_001")
    assert fact.key == "uow-1"
    assert not {"group-id", "group-total"} & {name for name, _ in fact.headers}
    assert dict(fact.headers)["amount"] == b"12.50 EUR"
    assert list(json.loads(fact.value)) == ["type", "unit", "status", "amount", "currency", "entity"]


def test_payment_data_without_the_group_part_join_no_group() -> None:
    fact = fact_of(payment_data(None, *EXAMPLE[1:]))
    assert (fact.key, list(json.loads(fact.value))) == ("uow-1", ["type", "unit", "status", "amount", "currency"])
    assert list(json.loads(fact_of(payment_data()).value)) == ["type", "unit", "status"]


def test_another_instant_party_message_or_entity_is_another_group() -> None:
    groups = [
        group_of(message_of()),
        group_of(message_of(), "BANK_001"),
        group_of(message_of(), "BANK_002"),
        group_of(message_of(CreDtTm="2026-03-28T10:00:01Z")),
        group_of(message_of(CreDtTm=None)),
        group_of(message_of(MsgId="MSG-2")),
        group_of(message_of(InitgPty={"Nm": "Another"})),
        group_of(message_of(InitgPty=None)),
    ]
    assert len({*groups, None}) == len(groups) + 1


def test_what_else_a_message_says_is_no_part_of_its_groups_identity() -> None:
    message, instruction, transfer = EXAMPLE
    other = payment_data(message, instruction | {"PmtInfId": "PMT-2"}, transfer | {"PmtId": {"EndToEndId": "E2E-2"}})
    assert group_of(message_of()) == group_of(message_of(NbOfTxs="2", CtrlSum="13")) == group_of(other)


def test_all_payments_of_a_real_message_have_one_group_and_each_message_has_another(sample_payments: Any) -> None:
    groups: dict[tuple[object, object, str], str | None] = {}
    for name, payments in sample_payments.items():
        header = payments[0][0]["GrpHdr"]
        found = {group_of(payment_data(*each)) for each in payments}
        assert len(found) == 1, name
        groups[header["MsgId"], header.get("CreDtTm"), json.dumps(header.get("InitgPty"))] = found.pop()
    assert None not in groups.values()
    assert len(set(groups.values())) == len(groups) > 5


@pytest.mark.parametrize(
    ("amount", "number", "currency"),
    [
        ({"InstdAmt": {"Ccy": "EUR", "value": "12.50"}}, "12.50", "EUR"),
        ({"InstdAmt": {"Ccy": "JPY", "value": 100}}, "100", "JPY"),
        ({"InstdAmt": {"Ccy": "EUR", "value": 0.10}}, "0.1", "EUR"),
        ({"EqvtAmt": {"Amt": {"Ccy": "USD", "value": "7"}, "CcyOfTrf": "EUR"}}, "7", "USD"),
        ({"InstdAmt": {"Ccy": "EUR", "value": "99999999999999999.9"}}, "99999999999999999.9", "EUR"),
        ({"InstdAmt": {"Ccy": "EUR", "value": "-1"}}, None, None),
        ({"InstdAmt": {"value": "1"}}, None, None),
        ({}, None, None),
        ("12", None, None),
    ],
)
def test_an_amount_has_the_digits_of_the_message(amount: Any, number: str | None, currency: str | None) -> None:
    value = amount_of(amount)
    assert (value.get("amount"), value.get("currency")) == (number, currency)


def test_a_fact_stays_small_whatever_the_message_holds() -> None:
    others = [{"Id": f"{number:034}", "Issr": "I" * 35} for number in range(5_000)]
    data = message_of(InitgPty={"Nm": "N" * 140, "Id": {"OrgId": {"Othr": others}}}, Unknown="x" * 100_000)
    fact = fact_of(data, "E" * 256, Marks(",".join([f"customData:{'k' * 100}"] * 1_000)))
    assert len(fact.value) + sum(len(value) for _, value in fact.headers) < 2 * LARGEST_PARTY_BYTES
    assert "initiatingParty" not in json.loads(fact.value)
    assert json.loads(fact.value)["original"]["OrgnlMsgId"] == "MSG-1"
    assert fact.key not in ("uow-1", fact_of(message_of(), "E" * 256).key)


def test_facts_take_part_in_what_an_envelope_may_let_out() -> None:
    came, data = envelope_of(SETTLED, SETTLED), payment_data(*EXAMPLE)
    made = handled(came, data)
    size = sum(each.size for each in (*made.notifications, *made.facts))
    assert len(handled(came, data, configured=HandlerSettings(max_bytes=size, makes_facts=True)).facts) == 2
    with pytest.raises(TooLarge):
        handled(came, data, configured=HandlerSettings(max_bytes=size - 1, makes_facts=True))


texts = st.text(max_size=12) | st.sampled_from(["NOTPROVIDED", "MSG-1"])
headers = dict.fromkeys(("MsgId", "CreDtTm", "NbOfTxs", "InitgPty"), texts)
marks_of_any = st.builds(Marks, incomplete=st.none() | st.just("sequence:3"), late=st.booleans(), ordered=st.booleans())


@given(
    message=st.none() | st.fixed_dictionaries({}, optional=headers),
    transfer=st.none() | st.fixed_dictionaries({}, optional={"Amt": st.sampled_from([EXAMPLE[2]["Amt"], {}, None, "x"])}),
    marks=marks_of_any,
    entity=st.none() | st.sampled_from(["BANK_001", "Ä"]),
    events=st.lists(st.sampled_from([SETTLED, ("Nothing", FLOW, None), ("PaymentRejected", FLOW, "AC04")]), max_size=4),
)
def test_without_facts_the_notifications_are_the_same_but_for_the_headers_of_the_group(
    message: Any, transfer: Any, marks: Marks, entity: str | None, events: Any
) -> None:
    data = payment_data(None if message is None else {"GrpHdr": message}, None, transfer)
    came = msgspec.structs.replace(envelope_of(*events), entity=entity)
    plain, made = (handled(came, data, marks, configured=each) for each in (HandlerSettings(), WITH_FACTS))
    of_group = {"group-id", "group-total", "amount"}
    bare = [
        msgspec.structs.replace(each, headers=tuple(header for header in each.headers if header[0] not in of_group))
        for each in made.notifications
    ]
    assert (tuple(bare), made.unmatched, made.suppressed) == (plain.notifications, plain.unmatched, plain.suppressed)
    assert (plain.facts, len(made.facts)) == ((), len(made.notifications))
    for fact, notification in zip(made.facts, made.notifications, strict=True):
        assert fact.headers == (("member", b"uow-1"), *notification.headers)
        assert b"\n" not in fact.value
        assert (json.loads(fact.value)["status"], json.loads(fact.value).get("late", False)) == (notification.status, marks.late)


def test_the_membership_is_made_once_for_a_payment() -> None:
    originals = Originals(SettingsAlone(SHIPPED), for_facts=True)
    data = payment_data(*EXAMPLE)
    assert originals.get(data).membership is originals.get(data).membership
    assert originals.get(data).membership.message is not None
    assert Originals(SettingsAlone(SHIPPED)).get(data).membership.message is None


# A handler of the user's own


class Says:
    def __init__(self, *messages: Message) -> None:
        self._messages = messages

    def handle(self, *given: Any) -> Any:
        return self._messages


def foreign(data: Any, *messages: Message, makes_facts: bool = True, max_bytes: int = 100_000) -> Handled:
    handler = ForeignHandler(Says(*messages), "own:Own", SettingsAlone(SHIPPED), max_bytes, makes_facts=makes_facts)
    handler = handler.with_lookups(SettingsAlone(SHIPPED))
    return handler.handle(envelope_of(SETTLED, ("My" * 5_000, FLOW, None)), data, UNMARKED, NOW)


def test_each_message_of_a_users_own_handler_is_a_fact_with_its_own_status() -> None:
    made = foreign(payment_data(*EXAMPLE), Message(1, "PDNG", b"x"), Message(0, "RJCT", b"y"))
    assert [(json.loads(each.value)["status"], each.key) for each in made.facts] == [
        (status, group_of(payment_data(*EXAMPLE))) for status in ("PDNG", "RJCT")
    ]
    assert [dict(each.headers)["group-id"].decode() for each in made.notifications] == [each.key for each in made.facts]
    assert len(dict(made.facts[0].headers)["event-name"]) == 1_024
    assert foreign(payment_data(*EXAMPLE), makes_facts=False).facts == ()


def test_payment_data_that_nobody_can_read_cost_a_users_own_handler_nothing() -> None:
    (fact,) = foreign(payment_data(b"{"), Message(0, "RJCT", b"y")).facts
    assert (fact.key, json.loads(fact.value)) == ("uow-1", {"type": "status", "unit": "uow-1", "status": "RJCT"})


def test_facts_of_a_users_own_handler_count_as_what_it_lets_out() -> None:
    with pytest.raises(TooLarge):
        foreign(payment_data(*EXAMPLE), Message(0, "RJCT", b"y"), max_bytes=700)
