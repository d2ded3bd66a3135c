"""Groups while the clock is wrong: no group ends by a clock that is not trusted, and none waits for a year."""

from harness.group_stage import DAY, HOUR, KEY, GroupStage, message

from notification_service.aggregation.core import Slot
from notification_service.aggregation.payments.head import GroupState

YEAR = 365 * DAY


def date_back(stage: GroupStage) -> bool:
    """Look at all groups by a clock that is trusted; return whether that changed anything."""
    turn, after = stage.processor.date_back(stage.values, "", stage.now)
    stage.values.commit(turn)
    assert (after, turn.output) == (None, [])
    return not turn.is_empty


def test_by_a_clock_that_is_not_trusted_a_deadline_is_reported_and_nothing_ends(stage: GroupStage) -> None:
    stage.say("a", "ACCC", original=message(2))
    stage.now += 2 * DAY
    turn = stage.processor.wake(stage.values, stage.now, stage.now, None)
    stage.values.commit(turn)
    assert (len(turn.output), stage.head.state) == (1, GroupState.INCOMPLETE)
    stage.now += 8 * DAY
    assert stage.processor.wake(stage.values, stage.now, stage.now, None).is_empty
    assert stage.member("a").status == "ACCC"
    stage.wake()
    assert stage.head.state is GroupState.ENDED


def test_what_a_clock_that_was_behind_has_written_ends_a_week_after_it_is_right(stage: GroupStage) -> None:
    """The clock was a year behind; the group is complete, and looks as if it had been so for a year."""
    stage.say("a", "ACCC", original=message(1))
    stage.now += YEAR
    for _ in range(2):
        turn = stage.processor.wake(stage.values, stage.now, stage.now, stage.now - DAY)
        stage.values.commit(turn)
    assert turn.is_empty, "it is not looked at again until it is due"
    assert stage.member("a").status == "ACCC"
    assert stage.head.due_at == stage.now + 6 * DAY
    stage.say("a", "ACSC")
    stage.now += 2 * DAY
    stage.values.commit(stage.processor.wake(stage.values, stage.now, stage.now, stage.now - 3 * DAY))
    assert stage.head.state is GroupState.COMPLETE
    stage.wait(7 * DAY)
    assert stage.head.state is GroupState.ENDED


def test_a_group_that_began_in_the_future_has_its_deadline_from_now_on(stage: GroupStage) -> None:
    stage.now += YEAR
    stage.say("a", "ACCC", original=message(2))
    stage.now -= YEAR
    assert date_back(stage)
    assert not date_back(stage)
    assert stage.wait(48 * HOUR - 1) == []
    assert len(stage.wait(1)) == 1


def test_a_group_that_was_complete_in_the_future_ends_a_week_from_now(stage: GroupStage) -> None:
    stage.now += YEAR
    stage.say("a", "ACCC", original=message(1))
    stage.now -= YEAR
    assert date_back(stage)
    stage.wait(7 * DAY)
    assert stage.head.state is GroupState.ENDED


def test_a_change_of_the_future_is_reported_with_those_of_now(stage: GroupStage) -> None:
    stage.say("a", "ACCC", original=message(1))
    stage.now += YEAR
    stage.say("a", "RJCT", original=message(1))
    stage.now -= YEAR
    assert date_back(stage)
    assert len(stage.wait(HOUR)) == 1


def test_what_is_right_is_not_changed(stage: GroupStage) -> None:
    stage.say("a", "ACCC", original=message(2))
    before = stage.values.stored[Slot(KEY)]
    assert not date_back(stage)
    assert stage.values.stored[Slot(KEY)] == before
