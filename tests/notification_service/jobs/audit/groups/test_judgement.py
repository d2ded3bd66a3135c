"""How the reports on a group are judged, by the states that its facts lead to."""

from __future__ import annotations

import pytest

from notification_service.jobs.audit.finding import Deviation
from notification_service.jobs.audit.groups.judgement import Completed, Group, Judged, SeenReport, State, judge

COMPLETED = Completed(place=30, counts=7, instruction_counts=0, total=3, control_units=None, members=3)
COMPLETE = Group((0, 0), 5, 3, COMPLETED, frozenset())
OPEN = COMPLETE._replace(completed=None)
AT_END, BEFORE, BEHIND = State(30, True, True), State(20, False, True), State(40, False, True)


def report(number: int = 1, *states: State, **fields: object) -> SeenReport:
    made = SeenReport(number, number, False, None, "3 ACCC", 7, 0, 3, None, None, None, "ACCC", states)
    return made._replace(**fields)


def deviations(judged: Judged) -> list[Deviation]:
    return [deviation for deviation, _ in judged.deviations]


def judged(*reports: SeenReport, group: Group | None = COMPLETE, read_to: int = 100) -> Judged:
    return judge(group, reports, {0: read_to})


def test_a_report_with_the_fact_that_completes_a_group_is_right() -> None:
    assert judged(report(1, AT_END)) == Judged([])


def test_so_are_one_at_the_deadline_before_it_and_an_amended_one_behind_it() -> None:
    assert judged(report(1, BEFORE, missing=1), report(2, AT_END), report(3, BEHIND, missing=1)) == Judged([])


def test_a_group_without_a_report_is_open_until_its_last_fact_is_counted() -> None:
    assert judged(read_to=30) == Judged([], is_open=True)
    assert judged(group=OPEN) == Judged([])
    missing = judged(read_to=31)
    assert deviations(missing) == [Deviation.GROUP_REPORT_MISSING]
    assert (
        missing.deviations[0][1]
        == "with offset 30 of the facts the last payment of the group (3) became final, and no report says so"
    )


def test_a_report_at_the_deadline_does_not_replace_the_one_at_the_end() -> None:
    assert deviations(judged(report(1, BEFORE, missing=1))) == [Deviation.GROUP_REPORT_MISSING]


def test_a_closed_group_needs_no_other_report_but_one_who_closed_it() -> None:
    closed = report(1, BEFORE, missing=1, closed_by="ann")
    assert judged(closed, group=COMPLETE._replace(persons=frozenset({"ann"}))) == Judged([])
    found = judged(closed)
    assert deviations(found) == [Deviation.GROUP_REPORT_EARLY]
    assert found.deviations[0][1] == "report 1 says that ann closed the group; no operator did"


def test_a_number_that_is_left_out_is_a_missing_report_and_nothing_else() -> None:
    found = judged(report(2, BEHIND))
    assert found.deviations == [(Deviation.GROUP_REPORT_MISSING, "report 1 is not there, although a later one is")]


def test_a_report_that_is_there_twice_is_doubled_unless_the_second_says_so() -> None:
    again = report(1, AT_END, place=2)
    assert deviations(judged(report(1, AT_END), again)) == [Deviation.GROUP_REPORT_DOUBLED]
    assert judged(report(1, AT_END), again._replace(is_possible_duplicate=True)) == Judged([])


def test_a_report_that_says_complete_before_it_is_so_is_early() -> None:
    never = judged(report(1, BEFORE, counts=5), group=OPEN)
    assert deviations(never) == [Deviation.GROUP_REPORT_EARLY]
    early = judged(report(1, BEFORE, counts=5))
    assert early.deviations[0][1].endswith(
        "is not marked incomplete, but its group is not complete before offset 30 of the facts"
    )


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"counts": 8}, "NbOfTxsPerSts"),
        ({"total": 4}, "OrgnlNbOfTxs"),
        ({"control_units": "5"}, "OrgnlCtrlSum"),
        ({"instruction_counts": 5}, "OrgnlPmtInfAndSts"),
        ({"status": "RJCT", "states": (AT_END._replace(fits=False),)}, "GrpSts or PmtInfSts"),
    ],
)
def test_a_report_with_other_counts_sums_or_statuses_differs_and_the_sentence_names_them(
    fields: dict[str, object], named: str
) -> None:
    found = judged(report(1)._replace(**fields))
    assert deviations(found) == [Deviation.GROUP_REPORT_DIFFERS]
    assert found.deviations[0][1].endswith(f"(3 payments): {named}")


def test_each_later_report_stands_on_a_state_not_before_that_of_the_one_before() -> None:
    second, third = report(2, State(40, False, True), State(60, False, True)), report(3, State(50, False, True))
    assert judged(report(1, AT_END), second, third) == Judged([])
    backwards = judged(report(1, AT_END), second, report(3, State(35, False, True)))
    assert [what for _, what in backwards.deviations] == [
        "report 3 (3 ACCC) differs from the facts: after none that it may stand on was it so"
    ]


def test_an_incomplete_report_stands_on_no_state_from_the_completion_on() -> None:
    found = judged(report(1, BEHIND, missing=1), report(2, AT_END))
    assert deviations(found) == [Deviation.GROUP_REPORT_DIFFERS]


def test_reports_that_the_service_made_anew_are_compared_without_their_order() -> None:
    again = report(1, AT_END, place=9, is_possible_duplicate=True)
    assert judged(report(1, BEHIND, missing=1), again) == Judged([])
    assert deviations(judged(report(1, AT_END), again._replace(states=()))) == [Deviation.GROUP_REPORT_DIFFERS]


def test_a_report_on_a_group_without_facts_is_named_and_facts_in_two_partitions_are_not_judged() -> None:
    assert deviations(judged(report(1), group=None)) == [Deviation.GROUP_REPORT_WITHOUT_FACTS]
    assert judged(group=COMPLETE._replace(partitions=(0, 1))) == Judged([], is_judged=False)


def test_a_report_that_contradicts_itself_says_in_what() -> None:
    found = judged(report(1, AT_END, flaw="its header group-total and its OrgnlNbOfTxs differ"))
    assert found.deviations == [
        (Deviation.GROUP_REPORT_DIFFERS, "report 1 contradicts itself: its header group-total and its OrgnlNbOfTxs differ")
    ]
