"""A group is complete when all its payments are there and final, and nothing contradicts that."""

from typing import Any

import pytest
from harness.group_stage import HOUR, GroupStage, instruction, marks_of, message, report_in

from notification_service.aggregation.payments.head import GroupState
from notification_service.aggregation.payments.report import Problem, find_problems


def test_a_group_is_reported_once_when_its_last_payment_is_final(stage: GroupStage) -> None:
    assert stage.say("a", "ACCC") == []
    assert stage.say("b", "ACSP") == []
    (report,) = stage.say("b", "RJCT")
    assert marks_of(report) == {"group-report": "1", "group-status": "PART"}
    assert stage.head.state is GroupState.COMPLETE
    assert stage.say("b", "RJCT") == []
    assert stage.wait(24 * HOUR) == []


def test_a_group_of_one_is_reported_with_its_only_status(stage: GroupStage) -> None:
    (report,) = stage.say("a", "ACCC", original=message(1))
    assert marks_of(report) == {"group-report": "1", "group-status": "ACCC"}


@pytest.mark.parametrize("status", ["RCVD", "ACSC", "PDNG"])
def test_a_group_waits_for_a_payment_that_is_not_final(stage: GroupStage, status: str) -> None:
    stage.say("a", "ACCC")
    assert stage.say("b", status) == []
    assert stage.head.state is GroupState.OPEN


def test_which_statuses_are_final_is_a_setting() -> None:
    stage = GroupStage(final_statuses=frozenset({"ACSC"}))
    stage.say("a", "ACSC")
    assert stage.say("b", "ACCC") == []
    assert len(stage.say("b", "ACSC")) == 1


def test_a_payment_may_lose_its_final_status_before_the_group_is_complete(stage: GroupStage) -> None:
    stage.say("a", "ACCC")
    stage.say("a", "PDNG")
    assert stage.say("b", "ACCC") == []
    assert stage.head.final == 1


TROUBLED: dict[Problem, tuple[list[dict[str, Any]], str]] = {
    Problem.NO_TOTAL: ([{"original": message(None)}] * 2, "no payment says how many the message has (NbOfTxs)"),
    Problem.CONTRADICTORY_TOTAL: (
        [{"original": message(2)}, {"original": message(3)}],
        "NbOfTxs is 2 for some payments and 3 for others",
    ),
    Problem.EXCEEDED: ([{"original": message(1)}] * 2, "the message says that it has 1 payment, and 2 came"),
    Problem.CONTROL_SUM: (
        [{"original": message(2, "10.00"), "amount": "5"}, {"original": message(2, "10.00"), "amount": "5.01"}],
        "the message says the sum 10.00, and its payments have 10.01",
    ),
    Problem.AMOUNT_UNKNOWN: (
        [{"original": message(2, "10.00"), "amount": "5"}, {"original": message(2, "10.00"), "amount": "1E+2"}],
        "the CtrlSum of the message cannot be compared: payments without a known amount: 1",
    ),
}


@pytest.mark.parametrize("problem", TROUBLED)
def test_a_group_with_a_problem_never_completes_silently(stage: GroupStage, problem: Problem) -> None:
    facts, what = TROUBLED[problem]
    stage.say("a", "RCVD", **facts[0])
    stage.say("b", "RCVD", **facts[1])
    assert stage.say("a", "ACCC", **facts[0]) == []
    assert stage.say("b", "ACCC", **facts[1]) == []
    assert find_problems(stage.head) == {problem: what}
    assert stage.head.state is GroupState.OPEN


def test_a_message_that_understates_its_payments_completes_early_if_the_others_come_later(stage: GroupStage) -> None:
    assert len(stage.say("a", "ACCC", original=message(1))) == 1
    stage.say("b", "RJCT", original=message(1))
    (amended,) = stage.wait(HOUR)
    assert marks_of(amended) == {"group-report": "2", "amended": "true"}
    assert find_problems(stage.head).keys() == {Problem.EXCEEDED}


def test_another_control_sum_is_a_contradiction_too(stage: GroupStage) -> None:
    stage.fields = {"amount": "5"}
    stage.say("a", "ACCC", original=message(2, "10.00"))
    stage.say("b", "RCVD", original=message(3, "11"))
    stage.say("b", "ACCC", original=message(4, "12"))
    assert find_problems(stage.head) == {
        Problem.CONTRADICTORY_TOTAL: "NbOfTxs is 2 for some payments and 3 for others,"
        " and CtrlSum is 10.00 for some payments and 11 for others"
    }


def test_the_same_numbers_in_other_words_are_no_contradiction(stage: GroupStage) -> None:
    stage.fields = {"amount": "5"}
    stage.say("a", "ACCC", original=message(2, "10.00"))
    assert len(stage.say("b", "ACCC", original=message("002", "10"))) == 1


def test_a_fact_that_says_no_number_or_an_invalid_one_contradicts_nothing(stage: GroupStage) -> None:
    stage.fields = {"amount": "5"}
    stage.say("a", "RCVD", original=message(2, "10"))
    stage.say("a", "ACCC", original=message("two", "ten"))
    assert len(stage.say("b", "ACCC", original=message(None))) == 1


def test_an_unknown_amount_is_no_problem_where_the_message_says_no_sum(stage: GroupStage) -> None:
    stage.say("a", "ACCC", amount="5")
    (report,) = stage.say("b", "ACCC")
    assert "DtldCtrlSum" not in report_in(report)["OrgnlGrpInfAndSts"]["NbOfTxsPerSts"][0]
    assert find_problems(stage.head) == {}


def test_an_amount_that_a_later_status_says_lets_the_group_complete(stage: GroupStage) -> None:
    stage.fields = {"original": message(2, "10.00")}
    stage.say("a", "ACCC", amount="5")
    assert stage.say("b", "ACCC") == []
    (report,) = stage.say("b", "ACCC", amount="5")
    assert marks_of(report) == {"group-report": "1", "group-status": "ACCC"}


def test_a_payment_information_that_contradicts_itself_does_not_hold_the_group_up(stage: GroupStage) -> None:
    stage.say("a", "ACCC", instruction=instruction("PMT-1", "3"))
    (report,) = stage.say("b", "ACCC", instruction=instruction("PMT-2", "1"))
    assert marks_of(report) == {"group-report": "1", "group-status": "ACCC"}


def test_a_problem_that_goes_away_lets_the_group_complete(stage: GroupStage) -> None:
    stage.say("a", "ACCC", original=message(None), amount="5")
    stage.say("b", "ACCC", original=message(None), amount="5")
    assert len(stage.say("b", "ACCC", original=message(2, "10"))) == 1


def test_a_message_of_many_payment_informations_completes_with_the_counts_of_the_whole(stage: GroupStage) -> None:
    stage.fields = {"original": message(101)}
    reports = [stage.say(f"u{n}", "ACCC", instruction=f"PMT-{n}") for n in range(101)]
    assert [len(each) for each in reports] == [0] * 100 + [1]
    assert "OrgnlPmtInfAndSts" not in report_in(reports[-1][0])
