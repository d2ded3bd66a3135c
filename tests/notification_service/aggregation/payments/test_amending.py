"""What changes after a report is collected into another report."""

from harness.group_stage import DAY, HOUR, GroupStage, marks_of, message, report_in

from notification_service.aggregation.payments.head import GroupState


def completed(**settings: int) -> GroupStage:
    stage = GroupStage(**settings)
    stage.say("a", "ACCC", amount="1")
    (report,) = stage.say("b", "ACCC", amount="2")
    assert marks_of(report) == {"group-report": "1", "group-status": "ACCC"}
    return stage


def test_a_change_after_the_report_is_reported_an_hour_later_with_the_next_number() -> None:
    stage = completed()
    assert stage.say("a", "RJCT") == []
    assert stage.view.due_at == stage.now + HOUR
    assert stage.wait(HOUR - 1) == []
    (amended,) = stage.wait(1)
    assert marks_of(amended) == {"group-report": "2", "group-status": "PART", "amended": "true"}
    assert stage.head.state is GroupState.COMPLETE
    assert stage.wait(DAY) == []


def test_further_changes_neither_push_it_nor_are_reported_one_by_one() -> None:
    stage = completed()
    stage.say("a", "RJCT")
    assert stage.wait(HOUR // 2) == []
    stage.say("b", "CANC")
    (amended,) = stage.wait(HOUR // 2)
    counts = report_in(amended)["OrgnlGrpInfAndSts"]["NbOfTxsPerSts"]
    assert [each["DtldSts"] for each in counts] == ["CANC", "RJCT"]


def test_what_is_as_it_was_reported_last_is_not_reported_again() -> None:
    stage = completed()
    stage.say("a", "RJCT")
    stage.say("a", "ACCC")
    assert stage.wait(DAY) == []
    assert stage.head.reports == 1
    assert stage.head.amend_at is None


def test_the_same_status_again_is_no_change() -> None:
    stage = completed()
    stage.say("a", "ACCC", amount="1")
    assert stage.head.amend_at is None


def test_another_amount_is_a_change() -> None:
    stage = completed()
    stage.say("a", "ACCC", amount="3")
    (amended,) = stage.wait(HOUR)
    assert report_in(amended)["OrgnlGrpInfAndSts"]["NbOfTxsPerSts"][0]["DtldCtrlSum"] == "5"


def test_each_later_change_has_its_own_report() -> None:
    stage = completed()
    numbers = []
    for status in ("RJCT", "CANC", "ACCC"):
        stage.say("a", status)
        numbers += [marks_of(each)["group-report"] for each in stage.wait(HOUR)]
    assert numbers == ["2", "3", "4"]


def test_a_payment_that_is_not_final_any_more_makes_the_amended_report_incomplete() -> None:
    stage = completed()
    stage.say("a", "PDNG")
    (amended,) = stage.wait(HOUR)
    assert marks_of(amended) == {"group-report": "2", "amended": "true", "incomplete": "1"}


def test_a_payment_too_many_is_in_the_amended_report_which_has_no_status() -> None:
    stage = completed()
    stage.say("c", "ACCC", amount="4")
    (amended,) = stage.wait(HOUR)
    assert marks_of(amended) == {"group-report": "2", "amended": "true"}
    assert report_in(amended)["OrgnlGrpInfAndSts"]["NbOfTxsPerSts"][0]["DtldNbOfTxs"] == "3"


def test_a_change_is_reported_before_the_group_ends_even_if_it_is_kept_for_a_shorter_time() -> None:
    stage = completed(retention_ms=1_000)
    stage.say("a", "RJCT")
    reports = stage.wait(5_000)
    assert [marks_of(each)["group-report"] for each in reports] == ["2"]
    assert stage.head.state is GroupState.ENDED


def test_a_doubled_or_early_waking_changes_nothing() -> None:
    stage = completed()
    stage.say("a", "RJCT")
    head = stage.head
    aggregate = stage.processor._aggregate
    for early in (stage.now, stage.now + HOUR - 1):
        change = aggregate.on_due("GROUP", stage.values.stored[("GROUP", "")].body, early, 0)  # type: ignore[index]
        assert (change.head, change.due) == (stage.values.stored[("GROUP", "")].body, head.due_at)  # type: ignore[index]
    assert len(stage.wait(HOUR)) == 1
    assert stage.wake().is_empty


def test_a_longer_setting_holds_for_groups_that_were_to_be_amended_sooner() -> None:
    stage = completed()
    stage.say("a", "RJCT", original=message(2))
    later = GroupStage(retention_ms=30 * DAY)
    later.values, later.now, later.offset = stage.values, stage.now, stage.offset
    assert len(later.wait(HOUR)) == 1
    assert later.view.due_at == later.now + 30 * DAY
