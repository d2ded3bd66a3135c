"""A reported group ends after its retention: its members are forgotten, later its head."""

import pytest
from harness.group_stage import DAY, HOUR, KEY, GroupStage, command_record, message, status_body

from notification_service.aggregation import core as module
from notification_service.aggregation.core import Slot
from notification_service.aggregation.payments.head import GroupState


def ended() -> GroupStage:
    stage = GroupStage()
    stage.say("a", "ACCC", instruction="PMT-1", amount="1")
    stage.say("b", "RJCT", instruction="PMT-2", amount="2")
    assert stage.wait(7 * DAY) == []
    assert stage.head.state is GroupState.ENDED
    return stage


def test_a_week_after_its_last_change_a_group_ends(stage: GroupStage) -> None:
    stage.say("a", "ACCC", original=message(1))
    stage.wait(3 * DAY)
    stage.say("a", "ACCC", original=message(1))
    stage.wait(7 * DAY - 1)
    assert stage.head.state is GroupState.COMPLETE
    stage.wait(1)
    assert stage.head.state is GroupState.ENDED


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_group_that_was_closed_or_reported_incomplete_ends_as_well(stage: GroupStage, is_closed: bool) -> None:
    stage.say("a", "ACCC")
    if is_closed:
        stage.close()
    else:
        stage.wait(48 * HOUR)
    stage.wait(7 * DAY - 1)
    assert stage.head.state in (GroupState.CLOSED, GroupState.INCOMPLETE)
    stage.wait(1)
    assert stage.head.state is GroupState.ENDED


def test_its_members_are_forgotten_and_its_head_keeps_what_operators_see() -> None:
    stage = ended()
    assert stage.values.stored.keys() == {Slot(KEY)}
    view = stage.view
    assert (view.message_id, view.initiating_party, view.total, view.members, view.final) == ("MSG-1", "Müller & Söhne", 2, 2, 2)
    assert [(each.status, each.count, each.total) for each in view.statuses] == [("ACCC", 1, "1"), ("RJCT", 1, "2")]
    assert (view.reports, view.missing, view.problems) == (1, 0, ())
    assert (stage.head.instructions, bytes(stage.head.party)) == ({}, b"")


def test_after_ninety_more_days_nothing_is_left() -> None:
    stage = ended()
    stage.wait(90 * DAY - 1)
    assert stage.values.stored.keys() == {Slot(KEY)}
    assert stage.wait(1) == []
    assert stage.values.stored == {}


def test_a_status_after_the_end_is_counted_and_starts_no_group() -> None:
    stage = ended()
    due_at = stage.view.due_at
    assert stage.say("a", "RJCT") == []
    assert stage.say("c", "ACCC", late=True) == []
    assert stage.head.too_late == 2
    assert stage.counts == {"ACCC": 1, "RJCT": 1}
    assert stage.values.stored.keys() == {Slot(KEY)}
    assert stage.view.due_at == due_at
    assert stage.wait(2 * HOUR) == []
    assert stage.view.problems == (
        "too-late: statuses that came after the group had ended, and are in no report: 2; look into the notifications of its"
        " payments, and keep groups longer (retention)",
    )


def test_a_status_after_the_end_that_comes_again_is_counted_once() -> None:
    stage = ended()
    stage.offset += 1
    record = command_record("a", status_body("a", "RJCT"), stage.offset)
    stage.apply(record)
    assert stage.apply(record).is_empty
    assert stage.head.too_late == 1


def test_a_status_between_two_portions_of_forgetting_is_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FORGOTTEN_AT_ONCE", 2)
    stage = GroupStage()
    stage.fields = {"original": message(5)}
    for unit in "abcde":
        stage.say(unit, "ACCC")
    stage.now += 7 * DAY
    for members_left in (4, 2, 0):  # The first status takes its forgotten member with it.
        assert stage.wake().output == []
        assert stage.say("a", "RJCT") == []
        assert sum(bool(slot.member) for slot in stage.values.stored) == members_left
    stage.wake()
    assert stage.head.state is GroupState.ENDED
    assert stage.head.too_late == 3
    assert (stage.head.members, stage.counts) == (5, {"ACCC": 5})


def test_the_same_group_may_begin_anew_once_it_is_forgotten() -> None:
    stage = ended()
    stage.wait(90 * DAY)
    stage.say("a", "ACCC")
    assert (stage.head.state, stage.head.members) == (GroupState.OPEN, 1)
