"""The audit's page and its charts."""

from __future__ import annotations

import re

from pipeline.audit.chart import Column, columns_chart, nice_top
from pipeline.audit.finding import Deviation, Finding
from pipeline.audit.page import render_page
from pipeline.audit.summary import AuditSummary, Bin, FlowLateness, StatusTime


def summary(*examples: Finding, waited_ms: tuple[Bin, ...] = ()) -> AuditSummary:
    counts = {each.value: sum(found.deviation is each for found in examples) for each in Deviation}
    bins = (Bin(0, 5), Bin(1, 0), Bin(2, 1))
    flows = (FlowLateness("Flow", 6, 1, 2, 3, None, None),)
    statuses = (StatusTime("ACCP", 1_000, 2), StatusTime("RJCT", 3_000, 1))
    return AuditSummary(1, 6, 3, 0, 0, 0, 0, counts, examples, waited_ms, bins, bins, flows, statuses, 1_000)


def test_the_page_needs_nothing_but_itself():
    page = render_page(summary(), "run/application")
    assert "://" not in page
    assert "<script" not in page
    assert page.count("<svg") == 3


def test_a_page_without_findings_says_so_and_one_with_findings_names_them():
    assert "Nothing is lost" in render_page(summary(), "here")
    page = render_page(summary(Finding(Deviation.LOST, "uow-1", 0, 17, "E1 is not there")), "here")
    assert "Nothing is lost" not in page
    assert "uow-1" in page
    assert "0@17" in page


def test_what_records_say_is_shown_and_never_interpreted():
    page = render_page(summary(Finding(Deviation.ORPHAN, "<img src=x>", 0, 1, "<b>&")), "<i>")
    assert "<img" not in page
    assert "<b>&" not in page
    assert "<i>" not in page


def test_waiting_is_told_in_milliseconds_where_records_have_a_time_and_in_envelopes_otherwise():
    assert "Files do not record" in render_page(summary(), "here")
    assert "milliseconds" in render_page(summary(waited_ms=(Bin(0, 3),)), "here")


def test_a_time_in_which_nothing_was_made_has_its_place_too():
    page = render_page(summary(), "here")
    assert [text for text in re.findall(r"<title>([^<]*)</title>", page) if "ACCP" in text or "RJCT" in text] == [
        "00:00:01: 2 ACCP",
        "00:00:03: 1 RJCT",
    ]


def test_columns_end_below_the_top_and_parts_stand_on_top_of_each_other():
    drawn = columns_chart([Column("one", (3, 4)), Column("two", (0, 0))], ("a", "b"), "axis")
    parts = [(float(y), float(height)) for y, height in re.findall(r'<rect[^>]* y="([\d.]+)"[^>]* height="([\d.]+)"', drawn)]
    assert len(parts) == 2
    lower, upper = parts
    assert abs(upper[0] + upper[1] - lower[0]) < 0.2


def test_the_axis_ends_at_a_round_number():
    assert [nice_top(highest) for highest in (0, 3, 5, 9, 13, 99, 12_543)] == [4, 4, 8, 12, 20, 120, 20_000]


def test_labels_do_not_touch():
    drawn = columns_chart([Column("12:34:56.7", (1,))] * 60, ("a",), "axis")
    assert drawn.count('class="label"') == 8
