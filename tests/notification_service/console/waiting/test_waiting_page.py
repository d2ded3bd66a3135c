"""The page of the waiting units, as a browser gets it."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from html import unescape
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from harness.console_stage import URL, http_settings, make_sources, text_of
from harness.driving import PARTITION
from harness.service_under_test import FakeClock
from harness.stored_units import StoredUnits
from starlette.testclient import TestClient

from notification_service.console.access.identity import NoLogin
from notification_service.console.application import make_application
from notification_service.console.context import Console
from notification_service.status.report import Identity, State, UnitWait, report
from notification_service.status.service_report import service_report
from resequencer.record import Partition
from resequencer.storage_port import WaitKind, Waits

P0, P1 = PARTITION, Partition("T", 1)
EVIL = "<script>alert(1)</script>&\"'"


def waits(since: int, waits_for: str = "sequence:1", kind: WaitKind = WaitKind.DEADLINE) -> Waits:
    return Waits(since + 21_000, kind, since, waits_for, "SEQUENCE", 2, 1_234)


class Stage:
    """A console over an embedded storage. `get` refreshes the copy first, as its thread would."""

    def __init__(self, directory: Path, *, is_stored: bool = True) -> None:
        self.clock = FakeClock()
        self.units = StoredUnits(directory)
        reported = report(Identity(1, "c", self.clock.now()), State.READY, None, self.clock.now())
        wait = UnitWait("uow-told", "T-0", "sequence:7", "deadline", "2026-03-28T23:33Z", "2026-03-28T23:34Z", 1)
        reported = msgspec.structs.replace(reported, oldest_waits=(wait,))
        sources = make_sources(
            directory,
            open_view=self.units.open_view if is_stored else None,
            partitions=[P0, P1],
            clock=self.clock,
            report=service_report([reported], self.clock.now(), is_running=True),
        )
        self.console = Console(http_settings(directory), sources)
        self.client = TestClient(make_application(self.console, NoLogin()), base_url=URL)

    def get(self, path: str = "/waiting", code: int = 200) -> str:
        if self.console.waiting.is_stored:
            self.console.waiting.refresh()
        answer = self.client.get(path)
        assert answer.status_code == code, answer.text
        return answer.text


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.units.close()


def test_the_oldest_stands_first_with_what_it_waits_for_and_a_link_to_it(stage: Stage) -> None:
    now = stage.clock.now()
    stage.units.put("young", b"", waits(now - 1_000))
    stage.units.put("old", b"", waits(now - 60_000, "sequence:4"), partition=P1)
    page = stage.get()
    assert page.index(">old<") < page.index(">young<")
    assert 'href="/unit?id=old&amp;partition=T-1"' in page
    assert "sequence:4" in page
    assert "1 min 0 s" in page


def test_filters_by_what_kind_partition_age_and_id(stage: Stage) -> None:
    now = stage.clock.now()
    stage.units.put("uow-a", b"", waits(now - 1_000, "sequence:1"))
    stage.units.put("uow-b", b"", waits(now - 700_000, "bank", WaitKind.DEPENDENCY), partition=P1)
    for query in ("for=ban", "kind=dependency", "partition=T-1", "older=10m", "id=uow-b"):
        page = stage.get(f"/waiting?{query}")
        assert ">uow-b<" in page, query
        assert ">uow-a<" not in page, query
        assert "1 match" in page, query
    assert "None matches" in stage.get("/waiting?for=nothing")


def test_a_unit_whose_handler_is_called_waits_for_its_answer_and_can_be_filtered(stage: Stage) -> None:
    now = stage.clock.now()
    called = Waits(now - 2_140, WaitKind.CALL, now - 9_000, "its handler, attempt 2 of 3", "SEQUENCE", 1, 100)
    stage.units.put("called", b"", called)
    stage.units.put("other", b"", waits(now - 60_000))
    page = stage.get("/waiting?kind=call")
    assert 'its answer<br><span class="muted">call, for 2.1 s</span>' in page
    assert "its handler, attempt 2 of 3" in page
    assert ">other<" not in page


def test_a_service_that_is_stale_is_told_before_what_waits(stage: Stage) -> None:
    stage.units.put("uow-a", b"", waits(stage.clock.now() - 60_000))
    page = stage.get()
    assert "is stale" not in page
    assert "deadline, 39 s ago" in page
    assert 'aria-sort="descending"><a href="/waiting?sort=newest">Age' in page
    assert '<th scope="col" class="number">Worker</th>' in page
    assert all(f"<dt>{each.value}</dt>" in page for each in WaitKind), "each kind is explained"
    sources = stage.console.sources
    reported = report(Identity(1, "c", 0), State.READY, None, stage.clock.now())
    stale = service_report([reported], stage.clock.now() + 20_000, is_running=True)
    stage.console.sources = sources._replace(find_report=lambda: stale)
    assert (
        "The service is stale (worker 0)"
        in TestClient(make_application(stage.console, NoLogin()), base_url=URL).get("/waiting").text
    )


def test_an_age_without_a_unit_is_refused_and_the_page_says_what_is_expected(stage: Stage) -> None:
    stage.units.put("uow-a", b"", waits(1))
    page = stage.get("/waiting?older=10", code=400)
    assert "older is '10'; expected: a number with a unit, such as 10m" in unescape(page)
    assert ">uow-a<" in page
    assert "older is '10'" in unescape(stage.get("/waiting.csv?older=10", code=400))


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        (
            "older_than=abc",
            "the parameter 'older_than' is unknown, its value is 'abc'; known are: for, kind, partition, older, id",
        ),
        ("sort=size", "sort is 'size'; expected: age, newest, id"),
        ("number=x", "number is 'x'; expected: that of a row"),
        ("kind=call&amp;kind=held", "the parameter kind is given twice"),
    ],
)
def test_a_parameter_that_would_not_be_applied_is_refused(stage: Stage, query: str, problem: str) -> None:
    assert problem in unescape(stage.get(f"/waiting?{unescape(query)}", code=400))


def test_a_list_is_sorted_and_says_which_rows_these_are_with_the_pages_beside(stage: Stage) -> None:
    for number in range(120):
        stage.units.put(f"uow-{(number * 7) % 120:03}", b"", waits(number))

    def shown(path: str) -> tuple[list[str], str, str, str]:
        page = stage.get(path)
        paging = text_of(re.search(r'<nav class="paging".*?</nav>', page)[0])  # type: ignore[index]
        links = {rel: unescape(url) for url, rel in re.findall(r'<a href="([^"]*)" rel="(prev|next)"', page)}
        return re.findall(rf'partition={P0}">([^<]*)<', page), paging, links.get("prev", ""), links.get("next", "")

    first, paging, previous, following = shown("/waiting?sort=id")
    assert (first[0], first[-1], paging, previous) == ("uow-000", "uow-049", "1–50 of 120 Next page", "")
    second, paging, previous, following = shown(following)
    assert (second[0], paging) == ("uow-050", "51–100 of 120 Previous page Next page")
    third, paging, back, none = shown(following)
    assert (third[-1], paging, none) == ("uow-119", "101–120 of 120 Previous page", "")
    assert shown(back)[:2] == (second, "51–100 of 120 Previous page Next page")
    assert shown(previous)[:2] == (first, "1–50 of 120 Next page")
    page = stage.get("/waiting?sort=newest&for=seq")
    assert page.index(">uow-113<") < page.index(">uow-106<"), "the last that came begins"
    assert 'aria-sort="ascending"><a href="/waiting?for=seq&amp;sort=age">Age' in page


def test_the_list_is_a_file_for_a_spreadsheet_in_which_nothing_is_a_formula(stage: Stage) -> None:
    stage.units.put("=cmd|' /C calc'!A0", b"", waits(1_000))
    for number in range(1_100):
        stage.units.put(f"uow-{number:04}", b"", waits(2_000 + number, 'bank,"a"'))
    stage.console.waiting.refresh()
    answer = stage.client.get("/waiting.csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"] == 'attachment; filename="waiting.csv"'
    rows = list(csv.reader(StringIO(answer.text, newline="")))
    assert len(rows) == 1_102
    assert rows[0] == ["unit", "waits_for", "kind", "since", "until", "envelopes", "bytes", "partition", "worker"]
    times = ["1970-01-01T00:00:01.000Z", "1970-01-01T00:00:22.000Z"]
    assert rows[1] == ["'=cmd|' /C calc'!A0", "sequence:1", "deadline", *times, "2", "1234", str(P0), ""]
    assert rows[2][:2] == ["uow-0000", 'bank,"a"']
    assert stage.client.get("/waiting.csv?id=uow-10&sort=id").text.count("\r\n") == 101


def test_pages_follow_each_other_without_a_gap_and_keep_the_filter(stage: Stage) -> None:
    for number in range(120):
        stage.units.put(f"uow-{number:03}", b"", waits(number, f"sequence:{number % 2}"))
    seen: list[str] = []
    path = "/waiting?for=sequence%3A1"
    while path:
        page = stage.get(path)
        seen += [part.split("<")[0] for part in page.split(f'partition={P0}">')[1:]]
        path = page.split('" rel="next"')[0].split('href="')[-1].replace("&amp;", "&") if 'rel="next"' in page else ""
    assert seen == [f"uow-{number:03}" for number in range(1, 120, 2)]


def test_a_place_that_is_none_is_a_bad_request(stage: Stage) -> None:
    stage.units.put("uow-a", b"", waits(1))
    assert "begin at the first one" in stage.get("/waiting?after=x", code=400)


def test_ids_and_what_they_wait_for_are_no_html(stage: Stage) -> None:
    stage.units.put(EVIL + "\x1b[2J", b"", waits(1, EVIL))
    page = stage.get()
    assert "<script>alert" not in page
    assert "\x1b" not in page
    assert "\\x1b[2J" in page


def test_nothing_waits_and_says_so(stage: Stage) -> None:
    stage.units.put("idle", b"", None)
    assert "Nothing waits." in stage.get()


def test_with_storage_none_the_reported_waits_are_shown_and_the_page_says_why_there_are_no_more(tmp_path: Path) -> None:
    stage = Stage(tmp_path, is_stored=False)
    page = stage.get()
    stage.units.close()
    assert "uow-told" in page
    assert "in the memory of its worker" in page


def test_a_page_says_first_of_all_that_it_is_old(stage: Stage) -> None:
    stage.units.put("uow-a", b"", waits(stage.clock.now() - 60_000))
    fresh = text_of(stage.get())
    assert "Waiting As of 2026-03-28 23:20:00, 0 s ago. Waiting units 1" in fresh
    stage.clock.advance(130_000)
    old = text_of(stage.client.get("/waiting").text)
    assert "Waiting ! The waiting units below are 2 min 10 s old : as of 2026-03-28 23:20:00. They are being read again" in old
    assert old.index("2 min 10 s old") < old.index("Waiting units 1")
