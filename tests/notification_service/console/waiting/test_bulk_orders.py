"""Orders for all units that a filter of the waiting page lets through, over real files."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
from harness.console_stage import text_of
from harness.service_under_test import P0

from guardian.ports import TransportUnavailable
from notification_service.console import order_pages
from notification_service.console.access.identity import AuditLogUnavailable, Role
from notification_service.console.waiting import bulk_orders
from resequencer.order import Order
from resequencer.order import Stage as Proposed
from resequencer.record import Partition
from tests.notification_service.console.test_orders import Stage as OrderStage


class Stage(OrderStage):
    """Three units wait for number 1, one of them under another name."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        super().__init__(directory, **settings)
        for unit in ("u-2", "other"):
            self.service.tell(unit, 2)
        self.service.run()
        self.clock.advance(self.service.clock.now() - self.clock.now() + 5_000)
        self.console.waiting.refresh()

    def confirm(self, order: str, status: int = 200, **asked: str) -> str:
        page = self.client.get("/orders/all", params={"order": order, **asked})
        assert page.status_code == status, page.text
        return page.text

    def order(self, page: str, **fields: str) -> Any:
        """Send the form of this page, as a browser does."""
        form = page.partition('action="/orders/give-all"')[2]
        hidden = {name: html.unescape(value) for name, value in re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', form)}
        return self.client.post("/orders/give-all", data={**hidden, "because": "a test", **fields})

    def given(self) -> list[Order]:
        return [each.order for each in self.book.orders([P0], 0)]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_all_that_match_are_released_each_by_an_order_of_its_own_after_their_count_was_shown(stage: Stage) -> None:
    waiting = stage.client.get("/waiting?id=u").text
    assert '<input type="hidden" name="id" value="u">' in waiting.partition('action="/orders/all"')[2]
    page = stage.confirm("release", id="u")
    assert "<h1>Release 2 units?</h1>" in page
    assert "u · sequence:1" in text_of(page)
    answer = stage.order(page)
    assert answer.status_code == 200
    assert "2 orders are given." in text_of(answer.text)
    assert [(each.kind.value, each.unit, each.waits_for, each.because) for each in stage.given()] == [
        ("release", unit, "sequence:1", "a test") for unit in ("u", "u-2")
    ]
    stage.service.run()
    assert stage.results() == ["done", "done"]
    assert [stage.service.sequences(each) for each in ("u", "u-2", "other")] == [[2], [2], []]
    (log,) = stage.console.sources.run_directory.glob("console-audit-*.jsonl")
    noted = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(each["action"], each.get("unit")) for each in noted] == [
        ("orders.release.all", None),
        ("orders.release", "u"),
        ("orders.release", "u-2"),
    ]
    assert (noted[0]["units"], noted[0]["id"], noted[0]["because"]) == (2, "u", "a test")


def test_all_get_another_deadline(stage: Stage) -> None:
    page = stage.confirm("extend", older="2s")
    assert "<h1>Extend 3 units?</h1>" in page
    assert stage.order(page, until="soon").status_code == 400
    page = stage.confirm("extend", older="2s")
    assert stage.order(page, until="2026-03-29T10:00").status_code == 200
    assert {each.kind.value for each in stage.given()} == {"extend"}
    assert len(stage.given()) == 3


def test_where_a_second_person_is_needed_each_is_a_proposal(tmp_path: Path) -> None:
    stage = Stage(tmp_path, approval=("release",))
    page = stage.confirm("release")
    assert "Each becomes a proposal" in page
    assert "No filter is set." in page
    assert "3 orders are proposed: another person has to approve each of them." in text_of(stage.order(page).text)
    assert {each.stage for each in stage.given()} == {Proposed.PROPOSED}


def test_units_that_came_after_the_confirmation_are_not_ordered_for(stage: Stage) -> None:
    page = stage.confirm("release", id="u")
    stage.service.clock.advance(stage.clock.now() - stage.service.clock.now() + 1)
    stage.service.tell("u-3", 2)
    stage.service.run()
    stage.console.waiting.refresh()
    assert stage.order(page).status_code == 200
    assert [each.unit for each in stage.given()] == ["u", "u-2"]


def test_more_than_were_confirmed_or_than_one_decision_is_for_are_refused(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    page = stage.confirm("release", id="u")
    answer = stage.order(page, count="1")
    assert answer.status_code == 409
    assert "2 units match now, not 1 or fewer; look again" in answer.text
    monkeypatch.setattr(bulk_orders, "MAX_ORDERS", 2)
    many = stage.confirm("release")
    assert "<h1>Release more than 2 units?</h1>" in many
    assert "Choose fewer by a filter" in many
    assert "give-all" not in many
    assert stage.given() == []


def test_what_fits_no_unit_and_whom_it_does_not_fit_are_refused(stage: Stage) -> None:
    assert "No unit matches." in stage.confirm("release", id="nothing")
    assert "wait at a deadline" in stage.confirm("release", 409, kind="retry")
    assert "order is &#39;hold&#39;; expected: release, extend" in stage.confirm("hold", 400)
    assert "is unknown" in stage.confirm("release", 400, older_than="10m")
    stage.logins.roles = frozenset({Role.VIEWER})
    stage.confirm("release", 403)
    assert "/orders/all" not in stage.client.get("/waiting").text


def test_a_book_that_fails_midway_says_how_many_were_given(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    page, append = stage.confirm("release"), stage.book.append

    def failing(partition: Partition, order: Order) -> int:
        if order.unit == "u-2":
            raise TransportUnavailable("the disk is full")
        return append(partition, order)

    monkeypatch.setattr(stage.book, "append", failing)
    answer = stage.order(page)
    assert answer.status_code == 503
    assert "1 of 3 orders was given, the others were not: the disk is full." in text_of(answer.text)


def test_an_audit_log_that_fails_midway_ends_it_and_the_page_says_how_many_were_given(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, note = stage.confirm("release"), stage.console.audit_log.note

    def failing(request: Any, action: str, **details: Any) -> None:
        if details.get("unit") == "u-2":
            raise AuditLogUnavailable(Path("log"), OSError(28, "No space left on device"))
        note(request, action, **details)

    monkeypatch.setattr(stage.console.audit_log, "note", failing)
    answer = stage.order(page)
    assert answer.status_code == 503
    assert "1 of 3 orders was given, the others were not: log: the audit log cannot be written" in text_of(answer.text)
    assert len(stage.given()) == 1


def test_of_many_proposals_the_oldest_are_listed_and_all_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path, approval=("release",))
    stage.order(stage.confirm("release"))
    monkeypatch.setattr(order_pages, "_SHOWN", 2)
    page = text_of(stage.client.get("/orders").text)
    assert "3 proposals to approve" in page
    assert "The oldest 2 are shown." in page
    assert page.count("proposed by") == 2
