"""Groups as operators see them."""

import msgspec
import pytest
from harness.group_stage import HOUR, KEY, GroupStage, instruction, message

from notification_service.aggregation.payments.group_view import GroupView, StatusCount, describe
from notification_service.aggregation.payments.head import GroupState

UNTIL = "; its report goes out at the deadline, or when you close it: resequencer groups close GROUP --because TEXT"


def test_a_group_is_described_with_what_it_waits_for(stage: GroupStage) -> None:
    begin = stage.now
    stage.fields = {"original": message(5), "entity": "DE"}
    stage.say("a", "ACCC", amount="12.50")
    stage.now += 10
    stage.say("b", "ACSP")
    assert stage.view == GroupView(
        key=KEY,
        message_id="MSG-1",
        initiating_party="Müller & Söhne",
        entity="DE",
        state=GroupState.OPEN,
        total=5,
        members=2,
        final=1,
        missing=4,
        statuses=(StatusCount("ACCC", 1, "12.50"), StatusCount("ACSP", 1, None)),
        problems=(),
        first_at=begin,
        last_at=begin + 10,
        due_at=begin + 48 * HOUR,
        reports=0,
        closed_by=None,
        because=None,
    )


def test_who_closed_it_and_why_is_told(stage: GroupStage) -> None:
    stage.say("a", "ACCC")
    stage.close("anna", "the sender is gone")
    view = stage.view
    assert (view.state, view.closed_by, view.because, view.reports) == (GroupState.CLOSED, "anna", "the sender is gone", 1)


def test_problems_are_sentences_with_what_to_do(stage: GroupStage) -> None:
    stage.say("a", "RCVD", original=message(1, "5"), amount="1")
    stage.say("b", "ACCC", original=message(2, "5"), amount="1")
    assert stage.view.problems == (
        f"contradictory-total: NbOfTxs is 1 for some payments and 2 for others; ask the sender which is right{UNTIL}",
        f"exceeded: the message says that it has 1 payment, and 2 came; ask the sender whether the message is right{UNTIL}",
    )


def test_a_sum_that_differs_is_told_with_both(stage: GroupStage) -> None:
    stage.fields = {"original": message(2, "5"), "amount": "1"}
    stage.say("a", "ACCC")
    stage.say("b", "ACCC")
    (problem,) = stage.view.problems
    assert problem.startswith("control-sum: the message says the sum 5, and its payments have 2; ")


def test_a_group_without_a_total_cannot_complete_by_itself(stage: GroupStage) -> None:
    stage.say("a", "ACCC", original=message(None))
    (problem,) = stage.view.problems
    assert problem == f"no-total: no payment says how many the message has (NbOfTxs); the group cannot complete by itself{UNTIL}"


def test_an_unknown_amount_is_a_note_where_the_message_says_no_sum(stage: GroupStage) -> None:
    stage.say("a", "RCVD")
    assert stage.view.problems == ()
    stage.say("b", "RCVD", amount="5")
    assert stage.view.problems == (
        "no-sum: payments without a known amount: 1, so reports have no sum of their status; look into the notifications"
        " of its payments",
    )


def test_an_unknown_amount_is_a_problem_where_the_message_says_a_sum(stage: GroupStage) -> None:
    stage.say("a", "ACCC", original=message(1, "100.00"), amount="1E+2")
    assert stage.view.problems == (
        "amount-unknown: the CtrlSum of the message cannot be compared: payments without a known amount: 1; look into the"
        f" notifications of its payments, and ask the sender whether the message is right{UNTIL}",
    )


def test_a_payment_information_that_contradicts_what_it_holds_is_named(stage: GroupStage) -> None:
    stage.fields = {"original": message(5)}
    stage.say("a", "ACCC", amount="1", instruction=instruction("A;B", "1"))
    assert stage.view.problems == ()
    stage.say("b", "ACCC", amount="1", instruction=instruction("A;B", "1"))
    remedy = (
        "; reports have no PmtInfSts there, and the group completes all the same; ask the sender whether the message is right"
    )
    more = "A,B says that it has 1 payment, and 2 came"
    assert stage.view.problems == (f"payment-information: {more}{remedy}",)
    stage.say("c", "ACCC", amount="1", instruction=instruction("C", "1", "1.00"))
    stage.say("d", "ACCC", amount="1", instruction=instruction("D", "3"))
    assert stage.view.problems == (f"payment-information: {more}{remedy}",)
    stage.say("e", "ACCC", amount="1", instruction=instruction("E", "1", "2.00"))
    less = "D says that it has 3 payments, and 1 came, and E says the sum 2.00, and its payments have 1"
    assert stage.view.problems == (f"payment-information: {more}, and {less}{remedy}",)


def test_once_the_report_is_out_a_problem_needs_no_close(stage: GroupStage) -> None:
    stage.say("a", "ACCC", original=message(None))
    stage.close()
    (problem,) = stage.view.problems
    assert not problem.endswith(UNTIL)


def test_many_payment_informations_are_told(stage: GroupStage) -> None:
    stage.fields = {"original": message(1_000)}
    for number in range(101):
        stage.say(f"u{number}", "RCVD", instruction=f"PMT-{number}")
    assert stage.view.problems == (
        "many-instructions: the message has more than 100 payment informations, so reports have only the counts of the whole"
        " message; look into the notifications of its payments",
    )


def test_a_head_of_a_later_version_is_refused(stage: GroupStage) -> None:
    stage.say("a", "ACCC")
    with pytest.raises(msgspec.DecodeError, match="version"):
        describe(KEY, stage.values.stored[(KEY, "")].body.replace(b'"version":1', b'"version":2'))  # type: ignore[index]
