"""A group that is not complete at its deadline is reported incomplete."""

from typing import Any

import pytest
from harness.group_stage import DAY, HOUR, GroupStage, marks_of, message, report_in

from notification_service.aggregation.payments.head import GroupState


def test_two_days_after_its_first_status_a_group_is_reported_with_what_is_missing(stage: GroupStage) -> None:
    stage.say("a", "ACCC", original=message(5))
    stage.wait(24 * HOUR)
    stage.say("b", "ACSP", original=message(5))
    assert stage.wait(24 * HOUR - 1) == []
    (report,) = stage.wait(1)
    assert marks_of(report) == {"group-report": "1", "incomplete": "4"}
    group = report_in(report)["OrgnlGrpInfAndSts"]
    assert "GrpSts" not in group
    assert [each["DtldSts"] for each in group["NbOfTxsPerSts"]] == ["ACCC", "ACSP"]
    assert stage.head.state is GroupState.INCOMPLETE


def test_the_deadline_is_a_setting() -> None:
    stage = GroupStage(deadline_ms=HOUR)
    stage.say("a", "ACCC")
    assert len(stage.wait(HOUR)) == 1


def test_a_complete_group_has_no_deadline(stage: GroupStage) -> None:
    stage.say("a", "ACCC")
    stage.say("b", "ACCC")
    assert stage.wait(3 * DAY) == []


@pytest.mark.parametrize(
    ("original", "statuses", "missing"),
    [
        (message(None), ["ACCC", "ACSP", "RCVD"], "2"),
        (message(None), ["ACCC"], "0"),
        (message(2), ["ACCC", "ACCC", "RCVD"], "1"),
        (message(1), ["ACCC", "ACCC"], "0"),
        (message(5), ["RCVD"], "5"),
    ],
    ids=["without a total", "without a total, all final", "exceeded", "exceeded, all final", "none final"],
)
def test_what_is_missing_is_counted_up_to_the_total_or_to_the_members(
    stage: GroupStage, original: Any, statuses: list[str], missing: str
) -> None:
    for number in range(len(statuses)):
        stage.say(f"u{number}", "RCVD", original=original)
    for number, status in enumerate(statuses):
        assert stage.say(f"u{number}", status, original=original) == []
    (report,) = stage.wait(48 * HOUR)
    assert marks_of(report) == {"group-report": "1", "incomplete": missing}


def test_a_group_whose_sum_differs_is_reported_without_a_status_although_nothing_is_missing(stage: GroupStage) -> None:
    stage.fields = {"original": message(2, "3"), "amount": "1"}
    for unit in ("a", "b"):
        stage.say(unit, "ACCC", instruction=f"PMT-{unit}")
    (report,) = stage.wait(48 * HOUR)
    assert marks_of(report) == {"group-report": "1", "incomplete": "0"}
    assert "PmtInfSts" not in report_in(report)["OrgnlPmtInfAndSts"][0]


def test_a_group_that_completes_after_all_is_reported_at_once_and_amended(stage: GroupStage) -> None:
    stage.say("a", "ACCC")
    stage.wait(48 * HOUR)
    (report,) = stage.say("b", "ACCC")
    assert marks_of(report) == {"group-report": "2", "group-status": "ACCC", "amended": "true"}
    assert stage.head.state is GroupState.COMPLETE
    assert stage.wait(2 * HOUR) == []


def test_what_changes_before_that_is_amended_as_after_any_report(stage: GroupStage) -> None:
    stage.fields = {"original": message(3)}
    stage.say("a", "ACCC")
    stage.wait(48 * HOUR)
    assert stage.say("b", "ACCC") == []
    (report,) = stage.wait(HOUR)
    assert marks_of(report) == {"group-report": "2", "incomplete": "1", "amended": "true"}
    assert stage.head.state is GroupState.INCOMPLETE


def test_completing_takes_the_place_of_a_pending_amendment(stage: GroupStage) -> None:
    stage.fields = {"original": message(3)}
    stage.say("a", "ACCC")
    stage.wait(48 * HOUR)
    stage.say("b", "ACCC")
    assert len(stage.say("c", "ACCC")) == 1
    assert stage.wait(2 * HOUR) == []


def test_a_longer_deadline_holds_for_groups_that_are_there(stage: GroupStage) -> None:
    stage.say("a", "ACCC")
    longer = GroupStage(deadline_ms=72 * HOUR)
    longer.values, longer.now = stage.values, stage.now
    assert longer.wait(72 * HOUR - 1) == []
    assert len(longer.wait(1)) == 1
