"""An operator closes a group that cannot complete."""

import pytest
from harness.group_stage import DAY, HOUR, GroupStage, command_record, marks_of, message

from notification_service.aggregation.payments.commands import encode_close
from notification_service.aggregation.payments.head import GroupState
from resequencer.dead_letter import DeadLetter, DeadLetterReason


def test_what_is_known_is_reported_as_incomplete_and_says_who_closed_it(stage: GroupStage) -> None:
    stage.say("a", "ACCC")
    (report,) = stage.close("anna")
    assert marks_of(report) == {"group-report": "1", "incomplete": "1", "closed-by": "anna"}
    assert (stage.head.state, stage.head.closed_by, stage.head.because) == (GroupState.CLOSED, "anna", "the sender is gone")
    assert stage.wait(48 * HOUR) == []


def test_a_group_whose_payments_are_all_there_and_final_is_not_incomplete(stage: GroupStage) -> None:
    stage.fields = {"original": message(2, "3"), "amount": "1"}
    stage.say("a", "ACCC")
    assert stage.say("b", "RJCT") == []
    (report,) = stage.close("anna")
    assert marks_of(report) == {"group-report": "1", "group-status": "PART", "closed-by": "anna"}


@pytest.mark.parametrize("totals", [(1, 1), (None, None), (2, 3)], ids=["exceeded", "no total", "contradictory"])
def test_it_has_no_status_where_it_is_unknown_whether_all_are_there(stage: GroupStage, totals: tuple[int | None, ...]) -> None:
    for status in ("RCVD", "ACCC"):
        for unit, total in zip("ab", totals, strict=True):
            assert stage.say(unit, status, original=message(total)) == []
    (report,) = stage.close("anna")
    assert marks_of(report) == {"group-report": "1", "closed-by": "anna"}


def test_closing_twice_changes_nothing(stage: GroupStage) -> None:
    stage.say("a", "ACCC")
    stage.close("anna")
    before = stage.values.stored.copy()
    stage.now += 1
    assert stage.close("bert") == []
    assert stage.values.stored == before


def test_closing_a_complete_group_changes_nothing(stage: GroupStage) -> None:
    stage.say("a", "ACCC", original=message(1))
    before = stage.values.stored.copy()
    assert stage.close() == []
    assert stage.values.stored == before


def test_a_group_that_was_reported_incomplete_may_be_closed(stage: GroupStage) -> None:
    stage.say("a", "ACCC")
    stage.wait(48 * HOUR)
    (report,) = stage.close("anna")
    assert marks_of(report) == {"group-report": "2", "incomplete": "1", "amended": "true", "closed-by": "anna"}


def test_what_comes_after_the_close_amends(stage: GroupStage) -> None:
    stage.say("a", "ACCC")
    stage.close("anna")
    assert stage.say("b", "ACCC") == []
    (report,) = stage.wait(HOUR)
    assert marks_of(report) == {"group-report": "2", "group-status": "ACCC", "amended": "true", "closed-by": "anna"}
    assert stage.head.state is GroupState.CLOSED


def refusal(stage: GroupStage) -> str:
    (letter,) = stage.apply(command_record(None, encode_close("anna", "why"), 99)).output
    assert isinstance(letter, DeadLetter)
    assert letter.reason is DeadLetterReason.HANDLER_FAILED
    return letter.error


def test_an_unknown_group_cannot_be_closed(stage: GroupStage) -> None:
    assert refusal(stage) == "the group GROUP cannot be closed: it is unknown"
    assert stage.values.stored == {}


def test_an_ended_group_cannot_be_closed(stage: GroupStage) -> None:
    stage.say("a", "ACCC", original=message(1))
    stage.wait(8 * DAY)
    assert refusal(stage) == "the group GROUP cannot be closed: it has ended"
