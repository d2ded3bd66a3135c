"""Group reports and facts are compared with the messages of the simulator: each planted error is noticed."""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from notification_service.aggregation.payments.commands import encode_close
from notification_service.simulator.verify.following import Compared, Following
from notification_service.simulator.verify.group_check import GroupRules, GroupsCheck, Why
from notification_service.simulator.verify.group_observation import group_code
from notification_service.simulator.verify.order_rules import Rules
from notification_service.simulator.verify.verdict import Deviation
from notification_service.simulator.verify.verification import GroupFiles, verify_files
from tests.notification_service.simulator.conftest import faultless
from tests.notification_service.simulator.verify.groups.conftest import DEADLINE_MS, Checked, Counting, edited, facts_of

SEQUENCE = Rules("SEQUENCE")
CALM: dict[str, Any] = {"units": 70, "losses": 0, "late": 0, "garbage": 0, "duplicates": 0}
ROUGH: dict[str, Any] = {"units": 300, "losses": 0.02, "late": 0.02, "garbage": 0, "duplicates": 0.02}


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("fields", [CALM, ROUGH])
def test_what_a_faultless_aggregation_reports_is_found_right(counted: Callable[..., Checked], fields: dict[str, Any], seed: int):
    right = counted(**(fields | {"seed": seed}))
    assert right.found() == {}
    counts = right.check().counts()
    assert counts.messages == len({each.message for each in right.run.units})
    assert counts.complete == counts.reports == len(right.reports) > 0
    assert right.check().outstanding() == 0


def test_all_messages_of_a_calm_run_are_complete(counted: Callable[..., Checked]):
    counts = counted(**CALM).check().counts()
    assert counts.complete == counts.messages


def test_a_message_whose_payments_did_not_all_end_says_why_it_has_no_report(counted: Callable[..., Checked]):
    outcomes = list(counted(**(ROUGH | {"units": 297})).check().outcomes())
    assert {Why.NOT_FINAL, Why.UNKNOWN, Why.NOT_ALL_SENT} <= {each.why for each in outcomes}
    assert Why.WRONG not in {each.why for each in outcomes}


def test_a_message_that_was_sent_twice_is_reported_early_and_is_not_complete(counted: Callable[..., Checked]):
    once = counted(**CALM)
    again = [msgspec.structs.replace(each, unit=f"{each.unit}-again", envelopes=()) for each in once.run.units]
    check = once.check()
    for unit in again:
        check.expect(unit)
    assert {each.why for each in check.outcomes()} == {Why.EARLY}
    assert check.counts().complete == 0


def test_a_report_that_is_missing_is_noticed(counted: Callable[..., Checked]):
    wrong = counted(**ROUGH)
    del wrong.reports[5]
    assert wrong.check().outstanding() == 1
    assert wrong.found() == {Deviation.GROUP_REPORT_MISSING: 1}


def test_a_doubled_report_is_noticed_unless_it_says_that_it_may_be_one(counted: Callable[..., Checked]):
    wrong = counted(**ROUGH)
    doubled = wrong._replace(reports=[*wrong.reports, wrong.reports[5]])
    assert doubled.found() == {Deviation.GROUP_REPORT_DOUBLED: 1}
    marked = wrong._replace(reports=[*wrong.reports, edited(wrong.reports[5], possible_duplicate="true")])
    assert marked.found() == {}


def _of_group(value: dict[str, Any]) -> dict[str, Any]:
    group: dict[str, Any] = value["CstmrPmtStsRpt"]["OrgnlGrpInfAndSts"]
    return group


def _count_one_more(value: dict[str, Any]) -> None:
    counted = _of_group(value)["NbOfTxsPerSts"][0]
    counted["DtldNbOfTxs"] = str(int(counted["DtldNbOfTxs"]) + 1)


def _add_a_cent(value: dict[str, Any]) -> None:
    _of_group(value)["NbOfTxsPerSts"][0]["DtldCtrlSum"] += "1"


def _change_the_status(value: dict[str, Any]) -> None:
    _of_group(value)["GrpSts"] = "ACSP"


def _change_the_total(value: dict[str, Any]) -> None:
    _of_group(value)["OrgnlNbOfTxs"] = "9"


def _leave_out_payment_informations(value: dict[str, Any]) -> None:
    del value["CstmrPmtStsRpt"]["OrgnlPmtInfAndSts"]


@pytest.mark.parametrize(
    "change",
    [
        {"value": _count_one_more},
        {"value": _add_a_cent},
        {"value": _change_the_status},
        {"value": _change_the_total},
        {"value": _leave_out_payment_informations},
        {"group_status": "RJCT"},
        {"group_total": "9"},
        {"amended": "true"},
        {"incomplete": "1"},
    ],
)
def test_a_report_that_says_something_wrong_is_noticed(counted: Callable[..., Checked], change: dict[str, Any]):
    wrong = counted(**ROUGH)
    at = max(range(len(wrong.reports)), key=lambda number: len(wrong.reports[number]))
    wrong.reports[at] = edited(wrong.reports[at], **change)
    assert Deviation.GROUP_REPORT_WRONG in wrong.found()


def test_a_report_on_a_message_that_is_not_complete_is_noticed(counted: Callable[..., Checked]):
    wrong = counted(**ROUGH)
    open_one = next(each for each in wrong.check().outcomes() if each.why is Why.NOT_FINAL)
    assert open_one.group is not None
    wrong.reports.append(edited(wrong.reports[0], group_id=open_one.group))
    assert wrong.found() == {Deviation.GROUP_REPORT_UNEXPECTED: 1}


def test_a_report_on_an_unknown_group_and_one_that_cannot_be_read_are_noticed(counted: Callable[..., Checked]):
    wrong = counted(**CALM)
    strange = [edited(wrong.reports[0], group_id="NOBODYS"), b"no line", edited(wrong.reports[0], group_report=None)]
    wrong.reports.extend(strange)
    assert wrong.found() == {Deviation.GROUP_REPORT_UNEXPECTED: 1, Deviation.UNREADABLE: 2}


def test_a_report_whose_last_final_status_never_came_out_is_noticed(counted: Callable[..., Checked]):
    wrong = counted(**CALM)
    early = next(number for number, each in enumerate(wrong.facts) if b'"ACCC"' in each)
    without_it = [each for number, each in enumerate(wrong.facts) if number != early]
    deviations = wrong._replace(facts=without_it).found()
    assert deviations.keys() >= {Deviation.FACT_LOST, Deviation.FACT_WRONG, Deviation.GROUP_REPORT_UNEXPECTED}


def test_a_closed_group_that_is_through_afterwards_owes_no_other_report_at_once(counted: Callable[..., Checked]):
    run = counted(**CALM).run
    counting, facts = Counting(), facts_of(run)
    group = next(each for each in (msgspec.json.decode(fact)["headers"].get("group-id") for fact in facts) if each)
    at = next(number for number, each in enumerate(facts, start=1) if group.encode() in each)
    counting.count(facts[:at])
    counting.give(group.encode(), encode_close("anna", "a test"))
    counting.count(facts[at:])
    right = Checked(run, facts, counting.reports)
    assert right.found() == {}
    assert right.check().outstanding() == 0


def test_a_lost_a_doubled_and_a_wrong_fact_are_noticed(counted: Callable[..., Checked]):
    right = counted(**ROUGH)
    assert right._replace(facts=right.facts[1:]).found()[Deviation.FACT_LOST] == 1
    assert right._replace(facts=[*right.facts, right.facts[-1]]).found() == {Deviation.FACT_WRONG: 1}
    first = edited(right.facts[0], value=lambda value: value.update(status="PDNG"))
    assert right._replace(facts=[first, *right.facts[1:]]).found()[Deviation.FACT_WRONG] == 1


def test_payments_of_two_messages_in_one_group_are_noticed(counted: Callable[..., Checked]):
    wrong = counted(**CALM)
    groups = [msgspec.json.decode(each)["headers"].get("group-id") for each in wrong.facts]
    first = next(each for each in groups if each)
    second = next(each for each in groups if each not in (None, first))
    facts = [each.replace(second.encode(), first.encode()) for each in wrong.facts]
    assert Deviation.FACT_WRONG in wrong._replace(facts=facts).found()


def test_a_report_at_the_deadline_and_a_closed_group_are_accepted_and_counted(counted: Callable[..., Checked]):
    run = counted(**ROUGH).run
    counting, facts = Counting(), facts_of(run)
    counting.count(facts)
    right = Checked(run, facts, counting.reports)
    complete = len(right.reports)
    closed = next(each.group for each in right.check().outcomes() if each.why is Why.NOT_FINAL)
    assert closed is not None
    counting.give(closed.encode(), encode_close("anna", "a test"))
    counting.wake(DEADLINE_MS + 1)
    assert right.found() == {}
    counts = right.check().counts()
    assert counts.complete == complete
    assert counts.incomplete == counts.reports - complete > 0
    wrong = right._replace(reports=[*right.reports[:-1], edited(right.reports[-1], incomplete="77")])
    assert wrong.found() == {Deviation.GROUP_REPORT_WRONG: 1}


@pytest.mark.parametrize(
    ("statuses", "code"),
    [("ACCC", "ACCC"), ("ACSC ACCC", "ACSC"), ("ACCC RJCT", "PART"), ("RJCT CANC", None), ("CANC", None), ("ACCC PDNG", None)],
)
def test_the_second_copy_of_the_rule_for_grpsts_is_that_of_the_contract(statuses: str, code: str | None):
    assert group_code(statuses.split()) == code


def test_a_follower_waits_for_the_last_report(counted: Callable[..., Checked], tmp_path: Path):
    right = counted(**CALM)
    notified = faultless(right.run, SEQUENCE)
    files = Compared(*(tmp_path / name for name in ("expected.jsonl", "notifications.jsonl", "dead-letters.jsonl")))
    groups = tuple(tmp_path / name for name in ("facts.jsonl", "reports.jsonl", "group-dead-letters.jsonl"))
    facts, reports, letters = groups

    def append(path: Path, lines: Sequence[bytes]) -> None:
        with path.open("ab") as file:
            file.writelines(each + b"\n" for each in lines)

    check = GroupsCheck(GroupRules())
    with closing(Following(SEQUENCE, files, groups=GroupFiles((facts, reports, letters), check))) as following:
        append(files.expected, right.run.expected_lines)
        append(files.notifications, notified.notifications)
        append(facts, right.facts[:-1])
        append(reports, right.reports[:-1])
        assert following.look().is_behind
        assert not following.look().is_complete
        append(facts, right.facts[-1:])
        assert following.look().is_behind
        look = following.look()
        assert (look.is_complete, look.outstanding_groups) == (False, 1)
        append(reports, right.reports[-1:])
        assert following.look().is_behind
        assert following.look().is_complete
        verdict = following.verdict()
    assert verdict.is_good
    assert verdict == verify_files(SEQUENCE, *files, groups=GroupFiles((facts, reports, letters), GroupsCheck(GroupRules())))
    append(reports, right.reports[-1:])
    again = verify_files(SEQUENCE, *files, groups=GroupFiles((facts, reports, letters), GroupsCheck(GroupRules())))
    assert not again.is_good


def test_a_follower_gives_up_on_a_report_that_never_comes(counted: Callable[..., Checked], tmp_path: Path):
    wrong = counted(**CALM)
    lines = (wrong.run.expected_lines, faultless(wrong.run, SEQUENCE).notifications, [], wrong.facts, wrong.reports[1:], [])
    paths = [tmp_path / name for name in ("expected", "notifications", "letters", "facts", "reports", "group-letters")]
    for path, content in zip(paths, lines, strict=True):
        path.write_bytes(b"".join(each + b"\n" for each in content))
    groups = GroupFiles((paths[3], paths[4], paths[5]), GroupsCheck(GroupRules()))
    with closing(Following(SEQUENCE, Compared(*paths[:3]), groups=groups)) as following:
        assert not following.look().is_complete
        following.give_up()
        assert dict(following.verdict().counts)[Deviation.GROUP_REPORT_MISSING] == 1
