"""How facts and reports are read: the audit and the service agree on what they say, though neither knows the other's code."""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import pytest
from harness.group_stage import GroupStage, instruction, message, status_body
from hypothesis import given
from hypothesis import strategies as st

from notification_service.aggregation.core import Completion
from notification_service.aggregation.payments.head import find_plain, units_of
from notification_service.aggregation.payments.report import find_group_status
from notification_service.jobs.audit.groups.judgement import Count, amount_units, find_status_of_all, fingerprint
from notification_service.jobs.audit.groups.report_rows import report_rows
from notification_service.jobs.audit.groups.rows import (
    CLOSE,
    STATUS,
    UNREADABLE,
    FactRow,
    NotifiedRow,
    RawRecord,
    ReportRow,
    fact_rows,
    notified_rows,
)
from notification_service.payments.iso20022.codes import TRANSACTION_STATUSES


def raw(value: bytes, key: bytes = b"GROUP", **headers: str) -> RawRecord:
    named = tuple((name.replace("_", "-"), text.encode()) for name, text in headers.items())
    return RawRecord(1, 70, 70, "partition-1.jsonl, byte 70", key, named, value)


def fact(*, body: dict[str, Any] | None = None, **headers: str) -> FactRow:
    problem = status_body("u1", "ACCC", amount="12.5", instruction="P1", original=message(3, "37.50")) if body is None else None
    (row,) = fact_rows(raw(json.dumps(body).encode() if problem is None else problem, member="u1", **headers))
    return row


def reported(completion: Completion, **headers: str) -> ReportRow:
    problem = {name: value for name, value in completion.headers if name not in headers}
    changed = tuple((problem | {name: value.encode() for name, value in headers.items()}).items())
    (row,) = report_rows(RawRecord(0, 5, 5, "completions.jsonl, byte 5", completion.key, changed, completion.value))
    return row


def test_a_fact_says_what_is_counted_and_where_its_record_was() -> None:
    row = fact(notification_id="ID", source_position="IN-2@17", possible_duplicate="true")
    assert row == FactRow(STATUS, 1, 70, "GROUP", "u1", "ACCC", False, "1250000", 3, "3750000", "P1", "ID", True, 2, 17)


def test_a_fact_without_a_message_has_no_group() -> None:
    row = fact(body={"type": "status", "unit": "u1", "status": "RCVD"})
    assert (row.group, row.member, row.units, row.total) == (None, "u1", None, None)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"type": "status", "unit": "u1", "status": "GONE"}, "its status 'GONE' is no ISO code"),
        ({"type": "status", "unit": "u2", "status": "ACCC"}, "its header and its value name different payments"),
        ({"type": 5}, "Expected `str`, got `int` - at `$.type`"),
    ],
)
def test_what_is_no_fact_is_named_with_its_place(body: dict[str, Any], problem: str) -> None:
    row = fact(body=body)
    assert row.kind == UNREADABLE
    assert row.person == f"partition-1.jsonl, byte 70: a fact that cannot be read: {problem}"


def test_a_close_names_its_person_and_other_commands_are_none_of_ours() -> None:
    assert fact(body={"type": "close", "person": "ann", "because": "x"}) == FactRow(CLOSE, 1, 70, "GROUP", person="ann")
    assert list(fact_rows(raw(b'{"type":"later"}'))) == []


def test_a_notification_is_known_by_its_id_and_its_group() -> None:
    notified = raw(b"", b"u1", notification_id="ID", group_id="GROUP", source_position="IN-2@17")
    assert list(notified_rows(notified)) == [NotifiedRow("ID", "GROUP", "u1", 2, 17)]
    assert list(notified_rows(raw(b"", b"u1"))) == []


@pytest.mark.parametrize("target_type", ["report", "report-xml"])
def test_a_report_says_its_counts_its_sums_and_its_statuses(target_type: str) -> None:
    stage = GroupStage(target_type=target_type)
    stage.say("a", "ACCC", amount="12.50", instruction="P1", original=message(2, "13.50"))
    (completion,) = stage.say("b", "RJCT", amount="1", instruction="P2", original=message(2, "13.50"))
    row = reported(completion)
    assert row.flaw is None
    assert (row.group, row.number, row.counts_text, row.total, row.control_units) == ("GROUP", 1, "1 ACCC, 1 RJCT", 2, "1350000")
    assert (row.status, row.status_if_through, row.has_statuses, row.has_no_statuses) == ("PART", "PART", True, False)
    assert row.counts == fingerprint([Count("", "RJCT", 1, "100000"), Count("", "ACCC", 1, "1250000")])
    assert row.instruction_counts == fingerprint([Count("P2", "RJCT", 1, ""), Count("P1", "ACCC", 1, "")])


@pytest.mark.parametrize(
    ("stated", "fits", "also_without"),
    [
        (instruction("P1"), True, False),
        (instruction("P1", "1"), True, False),
        (instruction("P1", "3"), True, True),
        (instruction("P1", "1", "9"), True, True),
    ],
)
def test_a_payment_information_that_contradicts_itself_has_no_status(
    stated: dict[str, str], fits: bool, also_without: bool
) -> None:
    stage = GroupStage()
    stage.fields = {"original": message(2), "amount": "5"}
    stage.say("a", "RCVD", instruction=stated)
    stage.say("b", "ACCC", instruction=stated | {"OrgnlPmtInfId": "P2"})
    (completion,) = stage.say("a", "ACCC", instruction=stated)
    assert reported(completion).has_statuses is fits
    assert reported(completion).has_no_statuses is also_without


@pytest.mark.parametrize(
    ("header", "value", "flaw"),
    [
        ("notification-id", "A" * 32, "its id is not that of report 1 on this group"),
        ("group-report", "2", "its id is not that of report 2 on this group"),
        ("group-total", "3", "its header group-total and its OrgnlNbOfTxs differ"),
        ("group-status", "RJCT", "its header group-status and its GrpSts differ"),
        ("amended", "true", "it is marked `amended` without an earlier report"),
    ],
)
def test_what_a_report_contradicts_by_itself_is_its_flaw(header: str, value: str, flaw: str) -> None:
    (completion,) = GroupStage().say("a", "ACCC", original=message(1))
    assert reported(completion, **{header: value}).flaw == flaw


@pytest.mark.parametrize(
    "value", [b"", b"{}", b"<a/>", b"<", b'{"CstmrPmtStsRpt":[]}', b'{"CstmrPmtStsRpt":{"OrgnlGrpInfAndSts":1}}']
)
def test_what_is_no_report_has_only_a_flaw(value: bytes) -> None:
    (completion,) = GroupStage().say("a", "ACCC", original=message(1))
    (row,) = report_rows(RawRecord(0, 5, 5, "here", None, completion.headers, value))
    assert row.group is None
    assert str(row.flaw).startswith("here: a group report that cannot be read: ")


def test_the_status_of_all_is_the_one_that_the_service_gives() -> None:
    for size in (1, 2, 3):
        for statuses in combinations(sorted(TRANSACTION_STATUSES), size):
            assert find_status_of_all(statuses) == find_group_status(statuses)


@given(st.from_regex(r"[0-9]{1,14}(\.[0-9]{0,6})?", fullmatch=True) | st.text(max_size=5))
def test_an_amount_has_the_units_that_the_service_counts(text: str) -> None:
    plain = find_plain(text)
    assert amount_units(text) == (None if plain is None else str(units_of(plain)))
