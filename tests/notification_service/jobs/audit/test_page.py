"""The page as a reader and a program see it."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

import notification_service.jobs.audit.page
from notification_service.jobs.audit.finding import EXPLANATIONS, Deviation, Finding
from notification_service.jobs.audit.page import render_page
from notification_service.jobs.audit.summary import (
    AuditSubject,
    AuditSummary,
    Bin,
    Distribution,
    FlowArrivals,
    GroupCounts,
    StatusTime,
    UsedLookups,
)

BINS = Distribution((Bin(0, 5), Bin(1, 0), Bin(2, 1)), 0, 3)
SUBJECT = AuditSubject(
    "run/here", "topic IN", "topic OUT", "topic DEAD", None, "the-group", "SEQUENCE", 21_000, 21_000, 1_790_005_123_456, 83_456
)
STYLE = Path(notification_service.jobs.audit.page.__file__).with_name("page.css").read_text(encoding="utf-8")


def summary(*examples: Finding, **fields: object) -> AuditSummary:
    counts = {each.value: sum(found.deviation is each for found in examples) for each in Deviation}
    values: dict[str, object] = {
        "units": 1,
        "arrivals": 6,
        "notifications": 3,
        "incomplete": 0,
        "late": 0,
        "open": 0,
        "not_compared": 0,
        "counts": counts,
        "examples": examples,
        "waited_ms": Distribution(),
        "waited_records": BINS,
        "depth": BINS,
        "flows": (FlowArrivals("Flow", 6, 1, 2, 3, None, None),),
        "statuses": (StatusTime("ACCP", 1_000, 2), StatusTime("RJCT", 3_000, 1)),
        "interval_ms": 1_000,
        "first_made_at": 1_200,
        "last_made_at": 3_900,
        "lookups": (UsedLookups("20261121T140036-ab", 3),),
    }
    return AuditSummary(**(values | fields))  # type: ignore[arg-type]


def page_of(*examples: Finding, subject: AuditSubject = SUBJECT, **fields: object) -> ElementTree.Element:
    """Return the page read by a strict parser, so it is well-formed."""
    return ElementTree.fromstring(render_page(summary(*examples, **fields), subject))


def text_of(element: ElementTree.Element | None) -> str:
    assert element is not None
    return " ".join("".join(element.itertext()).split())


def texts(page: ElementTree.Element, kind: str) -> list[str]:
    return [text_of(each) for each in page.iterfind(f".//*[@class='{kind}']")]


def facts(page: ElementTree.Element) -> dict[str, str]:
    return {text_of(each.find("dt")): text_of(each.find("dd")) for each in page.iterfind(".//dl[@class='facts']/div")}


def lost(unit: str | None = "uow-1", what: str = "E1 is not there") -> Finding:
    return Finding(Deviation.LOST, unit, 0, 1_017, what)


def test_the_page_needs_nothing_but_itself():
    page = page_of(lost())
    assert "://" not in render_page(summary(lost()), SUBJECT)
    assert not {each.tag for each in page.iter()} & {"script", "link", "img", "iframe", "form"}
    assert not re.search(r"url\(|@import", STYLE)


def test_its_parts_have_names_and_every_reference_inside_it_resolves():
    page = page_of(lost())
    assert page.get("lang") == "en"
    assert text_of(page.find("head/title")) == "Audit of run/here: 1 deviation"
    assert [each.tag for each in page.iterfind("body/*")] == ["header", "nav", "main", "footer"]
    ids = [each.get("id") for each in page.iter() if each.get("id")]
    assert len(ids) == len(set(ids))
    referred = [name for each in page.iter() for name in (each.get("aria-labelledby") or "").split()]
    referred += [each.get("href", "").removeprefix("#") for each in page.iter("a")]
    assert len(referred) > 10
    assert set(referred) <= set(ids)


def test_the_head_says_what_was_audited():
    assert facts(page_of()) == {
        "audited at": "2026-09-21 15:38:43 UTC",
        "took": "1 min 23 s",
        "service": "run/here",
        "input": "topic IN",
        "notifications": "topic OUT",
        "dead letters": "topic DEAD",
        "consumer group": "the-group",
        "strategy": "SEQUENCE",
        "deadline": "21 s",
        "time span": "notifications made from 1970-01-01 00:00:01 UTC to 1970-01-01 00:00:03 UTC",
        "lookups": "version 20261121T140036-ab (3 notifications)",
    }


def test_the_figures_are_named():
    found = [text_of(each) for each in page_of(open=19, late=2_000).iterfind(".//dl[@class='figures']/div")]
    assert found == [
        "units1",
        "envelopes6",
        "notifications3",
        "marked incomplete0",
        "marked late2,000",
        "open19",
        "not compared0",
    ]


def test_the_head_says_what_files_an_archive_and_learned_deadlines_change():
    subject = AuditSubject("here", "in", "out", "dead", "run/records", None, "SEQUENCE", 1_000, 600_000, 0, 0)
    shown = facts(page_of(subject=subject, lookups=(UsedLookups(None, 3),), first_made_at=None, last_made_at=None))
    assert shown["consumer group"] == "none: files"
    assert shown["read from the archive"] == "run/records"
    assert shown["deadline"] == "learned, 1 s to 10 min"
    assert shown["lookups"] == "none was used"
    assert shown["time span"] == "no notification says when it was made"


def test_the_verdict_is_reported_in_words_and_by_an_icon():
    good = page_of()
    assert [each.split(".")[0] for each in texts(good, "notice ok")] == ["Nothing deviates"]
    assert texts(good, "notice problem") == texts(good, "notice attention") == texts(good, "group") == []
    bad = page_of(lost(), lost("uow-2"), open=1, not_compared=2)
    assert texts(bad, "notice problem") == ["2 deviations: 2 lost."]
    assert [each.split(".")[0] for each in texts(bad, "notice attention")] == [
        "1 notification may still be published",
        "The content of 2 notifications was not compared",
    ]
    assert len(bad.findall(".//*[@class='icon']")) == 3


def test_findings_are_grouped_by_deviation_and_only_the_first_group_is_open():
    page = page_of(Finding(Deviation.ORPHAN, "uow-3", 1, 4, "no record"), lost(), lost("uow-2"))
    groups = page.findall(".//details[@class='group']")
    assert [text_of(each.find("summary")) for each in groups] == ["lost 2", "orphan 1"]
    assert [each.get("open") is not None for each in groups] == [True, False]
    assert [text_of(each) for each in groups[0].iter("li")] == [
        "uow-1partition 0, offset 1017E1 is not there",
        "uow-2partition 0, offset 1017E1 is not there",
    ]
    assert EXPLANATIONS[Deviation.LOST].meaning in text_of(groups[0])


def test_findings_that_are_not_shown_are_counted():
    page = page_of(lost(), counts={Deviation.LOST.value: 1_001})
    assert "1,000 more: see the table result/kind=finding/" in text_of(page.find(".//details[@class='group']"))


def test_a_finding_without_unit_and_position_says_so():
    page = page_of(Finding(Deviation.UNREADABLE, None, None, None, "line 3 of x"))
    assert text_of(page.find(".//ol/li")) == "no unitno positionline 3 of x"


@pytest.mark.parametrize("deviation", Deviation)
def test_each_deviation_says_what_it_means_and_what_to_do(deviation):
    explanation = EXPLANATIONS[deviation]
    assert explanation.meaning.endswith(".")
    assert explanation.remedy.endswith(".")
    assert f"`{deviation.value}`" in Path("docs/audit.md").read_text(encoding="utf-8")


def test_what_records_say_is_shown_and_never_interpreted():
    evil = "<img src=x>&<script>"
    page = page_of(
        Finding(Deviation.ORPHAN, evil, 0, 1, evil),
        subject=AuditSubject(evil, evil, evil, evil, evil, evil, evil, 1, 1, 0, 0),
        flows=(FlowArrivals(evil, 1, 0, 0, 0, None, None),),
        statuses=(StatusTime(evil, 0, 1),),
        lookups=(UsedLookups(evil, 1),),
    )
    assert not {each.tag for each in page.iter()} & {"script", "img"}
    assert sum(text == evil for each in page.iter() for text in [each.text]) >= 11


def test_characters_that_change_direction_or_do_not_print_are_shown_as_escapes():
    page = page_of(lost("a\u202eb\x1b[31m\x00\u200b\ud800"), flows=(FlowArrivals("\u2066x", 1, 0, 0, 0, None, None),))
    assert text_of(page.find(".//ol/li//code")) == r"a\u202eb\x1b[31m\x00\u200b\ud800"
    assert r"\u2066x" in text_of(page)
    assert {each.get("dir") for each in page.iter("bdi")} == {"ltr"}


def test_a_long_id_is_cut_in_its_middle_and_its_length_is_reported():
    shown = text_of(page_of(lost("A" + "b" * 9_998 + "C")).find(".//ol/li//code"))
    assert shown.startswith("Abb")
    assert shown.endswith("bbC (10,000 characters)")
    assert len(shown) < 200


def test_waiting_is_reported_as_a_time_where_records_have_one_and_in_envelopes_otherwise():
    files, topics = page_of(), page_of(waited_ms=Distribution((Bin(0, 3),), 0, 0))
    assert "Files do not record" in text_of(files)
    assert "deadline: 21 s" not in text_of(files)
    assert "Files do not record" not in text_of(topics)
    assert {"median: 0 ms", "99th percentile: 0 ms", "deadline: 21 s"} <= {text_of(each) for each in topics.iter("text")}


def test_each_chart_is_described_and_has_its_figures_as_a_table():
    page = page_of()
    figures = page.findall(".//figure")
    assert len(figures) == 3
    for each in figures:
        assert text_of(each.find("svg/desc")) == text_of(each.find("figcaption"))
        assert each.find("details[@class='data']//tbody/tr") is not None
        assert each.find("details[@class='data']").get("open") is None  # type: ignore[union-attr]
    rows = [[text_of(cell) for cell in row] for row in figures[0].iterfind(".//tbody/tr")]
    assert rows == [["0", "5", "83.3%"], ["1", "0", "0.0%"], ["2 to 4", "1", "16.7%"]]


def test_a_time_in_which_nothing_was_made_has_its_place_too():
    rects = page_of().findall(".//section[@aria-labelledby='over-time']//rect")
    assert [(text_of(each), each.get("x")) for each in rects] == [
        ("1970-01-01 00:00:01 UTC: 2 ACCP", "2.00%"),
        ("1970-01-01 00:00:03 UTC: 1 RJCT", "68.67%"),
    ]


def test_statuses_beyond_the_colours_are_drawn_together():
    statuses = tuple(StatusTime(f"S{at:02}", 0, 100 - at) for at in range(12))
    page = page_of(statuses=statuses)
    assert texts(page, "legend")[0].endswith("S06others")
    assert "UTC: 455 others" in text_of(page.findall(".//rect/title")[-1])


def test_late_has_one_meaning_on_the_page():
    """Other texts say overdue, overtaken or out of order."""
    shown = " ".join(text_of(page_of(*(Finding(each, "u", 0, 1, "x") for each in Deviation))).split())
    shown = re.sub(r"marked late|marked late without a reason|not marked late|late(?=A notification's mark)", "", shown)
    assert re.findall(r".{20}\b[Ll]ate(?:ness)?\b.{20}", shown) == []


def tokens(scheme: str) -> dict[str, str]:
    light, dark = re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)
    found = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", light))
    return found | (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", dark)) if scheme == "dark" else {})


def contrast(one: str, other: str) -> float:
    """Return the contrast as WCAG 2.2 defines it."""

    def luminance(color: str) -> float:
        parts = (int(color[at : at + 2], 16) / 255 for at in (1, 3, 5))
        linear = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    brighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_and_charts_stand_out_from_their_ground(scheme):
    colors = tokens(scheme)
    grounds = [colors["ground"], colors["surface"]]
    for name in ("ink", "soft", "accent"):
        assert min(contrast(colors[name], ground) for ground in grounds) >= 4.5, name
    for state in ("ok", "attention", "problem"):
        assert min(contrast(colors[each], colors[f"{state}-ground"]) for each in (state, "ink")) >= 4.5, state
    assert contrast(colors["problem"], colors["ground"]) >= 4.5
    for number in range(1, 9):
        assert contrast(colors[f"series-{number}"], colors["ground"]) >= 3, number


def test_both_schemes_have_the_same_colours():
    light, dark = re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)
    names = [set(re.findall(r"--([\w-]+): #", each)) for each in (light, dark)]
    assert names[0] == names[1]


def test_groups_are_in_the_figures_and_what_is_not_known_of_them_is_noticed():
    subject = AuditSubject("here", "in", "out", "dead", None, None, "SEQUENCE", 1, 1, 0, 0, "topic GROUPS")
    page = page_of(subject=subject, groups=GroupCounts(4, 1, 1, 1, 1, payments=9, reports=3, awaited=1, not_judged=2))
    shown = [text_of(each) for each in page.iterfind(".//dl[@class='figures']/div")]
    assert shown[7:] == [
        *("groups4", "payments of groups9", "group reports3", "groups complete1", "groups incomplete1", "groups closed1"),
        *("groups without a report1", "reports that may still come1", "groups not judged2"),
    ]
    assert facts(page)["group reports"] == "topic GROUPS"
    assert [each.split(".")[0] for each in texts(page, "notice attention")] == [
        "1 group report may still be published",
        "2 groups could not be judged",
    ]
