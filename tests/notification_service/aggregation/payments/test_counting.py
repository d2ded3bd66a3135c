"""Counts of a group: each payment counts once, with its latest status."""

import json

import pytest
from harness.group_stage import KEY, PARTY, GroupStage, command_record, message, status_body

from notification_service.aggregation.core import Slot
from notification_service.aggregation.payments.head import MAX_INSTRUCTIONS, Instruction, Member, Tally


def test_a_payment_counts_with_its_latest_status(stage: GroupStage) -> None:
    stage.say("a", "RCVD")
    stage.say("b", "RCVD")
    assert stage.counts == {"RCVD": 2}
    stage.say("a", "ACSP")
    assert stage.counts == {"ACSP": 1, "RCVD": 1}
    stage.say("b", "RJCT")
    assert stage.counts == {"ACSP": 1, "RJCT": 1}
    assert (stage.head.members, stage.head.final, stage.head.missing) == (2, 1, 1)


def test_a_member_is_its_status_amount_payment_information_and_the_place_of_the_command(stage: GroupStage) -> None:
    stage.say("a", "ACSP", offset=7, partition=3, amount="12.5", currency="EUR", instruction="PMT-1")
    assert stage.member("a") == Member("ACSP", "12.50", "EUR", "PMT-1", 3, 7)


def test_the_command_at_a_place_that_was_applied_or_before_it_changes_nothing(stage: GroupStage) -> None:
    first = command_record("a", status_body("a", "RCVD"), 5)
    second = command_record("a", status_body("a", "ACSP"), 6)
    stage.apply(first, second)
    stage.now += 1
    for again in ([first], [second], [first, second]):
        assert stage.apply(*again).is_empty


def test_a_command_in_another_partition_counts(stage: GroupStage) -> None:
    stage.say("a", "ACSP", offset=7)
    stage.say("a", "RCVD", offset=3, partition=1)
    assert stage.counts == {"RCVD": 1}


def test_a_late_status_counts_only_for_a_payment_that_has_none(stage: GroupStage) -> None:
    stage.say("a", "RCVD", late=True)
    assert stage.counts == {"RCVD": 1}
    stage.say("a", "ACSP")
    before = stage.values.stored.copy()
    stage.now += 1
    stage.say("a", "RCVD", late=True)
    assert stage.values.stored == before


def test_a_payment_of_no_group_changes_nothing(stage: GroupStage) -> None:
    turn = stage.apply(command_record("u", status_body("u", "ACCC", original=None), 1, key="u"))
    assert turn.is_empty
    assert turn.applied == 1
    stage.say("a", "RCVD")
    assert stage.apply(command_record("b", status_body("b", "ACCC", original=None), 9)).is_empty


def test_amounts_are_summed_for_each_status_without_regard_to_currencies(stage: GroupStage) -> None:
    stage.say("a", "RCVD", amount="0.10", currency="EUR")
    stage.say("b", "RCVD", amount="0.20", currency="CHF")
    assert stage.head.statuses == {"RCVD": Tally(2, "0.30", 0)}
    stage.say("a", "ACCC", amount="0.10", currency="EUR")
    assert stage.head.statuses == {"ACCC": Tally(1, "0.10", 0), "RCVD": Tally(1, "0.20", 0)}


def test_a_sum_is_unknown_for_as_long_as_an_amount_of_its_status_is(stage: GroupStage) -> None:
    stage.say("a", "RCVD", amount="0.10")
    stage.say("b", "RCVD")
    assert stage.head.statuses == {"RCVD": Tally(2, "0.10", 1)}
    assert stage.view.statuses[0].total is None
    stage.say("b", "ACSP", amount="5")
    assert stage.head.statuses == {"ACSP": Tally(1, "5", 0), "RCVD": Tally(1, "0.10", 0)}
    assert stage.view.statuses[1].total == "0.10"


def test_a_payment_keeps_its_amount_and_payment_information_when_a_later_fact_does_not_say_them(stage: GroupStage) -> None:
    stage.say("a", "RCVD", amount="0.10", currency="EUR", instruction="PMT-1")
    stage.say("a", "ACCC")
    assert stage.member("a").amount == "0.10"
    assert stage.member("a").currency == "EUR"
    assert stage.head.statuses == {"ACCC": Tally(1, "0.10", 0)}
    assert stage.head.instructions == {"PMT-1": Instruction({"ACCC": 1}, total="0.10")}


def test_an_amount_that_is_none_is_unknown(stage: GroupStage) -> None:
    stage.say("a", "RCVD", amount="-3", currency="EUR")
    assert stage.head.statuses == {"RCVD": Tally(1, "0", 1)}
    assert stage.member("a").currency is None


def test_each_payment_information_has_its_numbers_and_counts(stage: GroupStage) -> None:
    stage.say("b", "RCVD", instruction={"OrgnlPmtInfId": "PMT-2", "OrgnlNbOfTxs": "1", "OrgnlCtrlSum": "x"})
    stage.say("a", "RCVD", instruction={"OrgnlPmtInfId": "PMT-1"})
    stage.say("c", "ACSP", amount="5", instruction={"OrgnlPmtInfId": "PMT-1", "OrgnlNbOfTxs": "2", "OrgnlCtrlSum": "7.00"})
    stage.say("d", "ACSP")
    assert list(stage.head.instructions.items()) == [
        ("PMT-1", Instruction({"ACSP": 1, "RCVD": 1}, "2", "7.00", "5", 1)),
        ("PMT-2", Instruction({"RCVD": 1}, "1", None, "0", 1)),
    ]


def test_a_payment_that_moves_to_another_payment_information_is_counted_there(stage: GroupStage) -> None:
    stage.say("a", "RCVD", instruction="PMT-1")
    stage.say("a", "RCVD", instruction="PMT-2", amount="0.30")
    assert stage.head.instructions == {"PMT-2": Instruction({"RCVD": 1}, total="0.30")}


def test_an_invalid_payment_information_is_that_of_the_notifications(stage: GroupStage) -> None:
    stage.say("a", "RCVD", instruction="x" * 36)
    assert stage.head.instructions == {"NOTPROVIDED": Instruction({"RCVD": 1}, None, None, "0", 1)}


def test_beyond_a_hundred_payment_informations_none_is_counted(stage: GroupStage) -> None:
    stage.fields = {"original": message(1_000)}
    for number in range(MAX_INSTRUCTIONS):
        stage.say(f"u{number}", "RCVD", instruction=f"PMT-{number}")
    assert len(stage.head.instructions) == MAX_INSTRUCTIONS
    stage.say("one-more", "RCVD", instruction="PMT-one-more")
    stage.say("u0", "ACCC", instruction="PMT-0")
    assert stage.head.instructions == {}
    assert stage.head.many_instructions
    assert stage.counts == {"ACCC": 1, "RCVD": MAX_INSTRUCTIONS}


def test_a_head_stays_small_however_many_payments_and_whatever_texts_it_has(stage: GroupStage) -> None:
    long = "ü" * 35
    party = {"Nm": "N" * 140, "Id": {"OrgId": {"Othr": [{"Id": f"{n}"} for n in range(10_000)]}}}
    numbers = {"OrgnlNbOfTxs": "9" * 15, "OrgnlCtrlSum": "9" * 18}
    for number in range(300):
        instruction = {"OrgnlPmtInfId": f"{number % MAX_INSTRUCTIONS:02}{long[2:]}"} | numbers
        stage.say(
            f"u{number}",
            ("RCVD", "ACSP", "RJCT")[number // MAX_INSTRUCTIONS],
            original=message("1" * 15, "1" * 18 + "." + "0" * 1_000),
            initiatingParty=None if number else party,
            instruction=instruction,
        )
    assert len(stage.values.stored[Slot(KEY)].body) < 32 * 1024
    assert stage.head.who == "N" * 140
    assert json.loads(bytes(stage.head.party)) == {"Nm": "N" * 140}


def test_instants_never_go_back(stage: GroupStage) -> None:
    begin = stage.now
    stage.say("a", "RCVD")
    stage.now = begin - 500
    stage.say("b", "RCVD")
    assert (stage.head.first_at, stage.head.last_at) == (begin, begin)
    stage.now = begin + 500
    stage.say("a", "ACSP")
    assert (stage.head.first_at, stage.head.last_at) == (begin, begin + 500)


def test_what_the_first_fact_does_not_say_of_the_message_a_later_one_may(stage: GroupStage) -> None:
    stage.say("a", "RCVD", original=message(None), initiatingParty=None)
    assert (stage.head.total, stage.head.who, stage.head.entity) == (None, "NOTPROVIDED", None)
    stage.say("b", "RCVD", original=message(2, "7"), initiatingParty=PARTY, entity="DE")
    assert (stage.head.total, stage.head.message.OrgnlCtrlSum, stage.head.who) == (2, "7", PARTY["Nm"])
    assert stage.head.entity == "DE"


@pytest.mark.parametrize(
    ("party", "who"),
    [
        ({"Nm": "Anna", "Id": {"OrgId": {"AnyBIC": "DEUTDEFF"}}}, "Anna"),
        ({"Id": {"OrgId": {"AnyBIC": "DEUTDEFF", "LEI": "5493001KJTIIGC8Y1R12", "Othr": [{"Id": "4711"}]}}}, "DEUTDEFF"),
        ({"Id": {"OrgId": {"LEI": "5493001KJTIIGC8Y1R12", "Othr": [{"Id": "4711"}]}}}, "5493001KJTIIGC8Y1R12"),
        ({"Id": {"PrvtId": {"Othr": [{"Id": "4711"}, {"Id": "4712"}]}}}, "4711"),
        ({"CtryOfRes": "DE"}, "NOTPROVIDED"),
        ({"Nm": ""}, "NOTPROVIDED"),
        ("x", "NOTPROVIDED"),
        (None, "NOTPROVIDED"),
    ],
)
def test_the_party_is_known_by_its_name_else_by_its_first_id(stage: GroupStage, party: object, who: str) -> None:
    stage.say("a", "RCVD", initiatingParty=party)
    assert stage.head.who == who
