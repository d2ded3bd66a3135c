"""The orders of a unit: on its page, in the API and in `units show`, over real files of orders and outcomes."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from harness.console_stage import make_sources
from harness.processes.operated_service import INGRESS, NOTIFICATION
from harness.service_under_test import BEGINNING, P0, FakeClock
from harness.stored_units import StoredUnits

from guardian.ports import TransportUnavailable
from notification_service.command_line import main
from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.orders import OrderFiles
from notification_service.connectors.files.settings import FileSettings
from notification_service.console.find_unit import Search, find_orders, find_story
from notification_service.console.orders import ListedOrder, OrderState, order_answer
from notification_service.console.unit_story import DeadLetters, Left, LeftNotification, UnitOrders, UnitStory, timeline_of
from notification_service.status.report import Identity, State, report
from notification_service.status.service_report import service_report
from notification_service.supervision.system_clock import SystemClock
from notification_service.wiring.dead_letter_stores import FileDeadLetterStore
from resequencer.clock import instant_text
from resequencer.order import Order, OrderKind
from tests.notification_service.console.test_orders import HOUR, Stage

DAY = 24 * HOUR


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def shown(stage: Stage) -> dict[str, Any]:
    answer = stage.client.get("/api/v1/unit", params={"id": "u"})
    assert answer.status_code == 200, answer.text
    story: dict[str, Any] = answer.json()
    return story


def rows(page: str) -> list[str]:
    """The rows of the table of orders, without markup."""
    table = page.partition('<section aria-labelledby="orders">')[2].partition("</section>")[0]
    return [html.unescape(re.sub(r"<[^>]+>", " ", row)) for row in re.findall(r'<tr id="order-.*?</tr>', table, re.DOTALL)]


def test_the_story_of_a_released_unit_tells_who_released_it_why_and_what_came_of_it(stage: Stage) -> None:
    stage.give(OrderKind.RELEASE, because="the bank called")
    given_at = instant_text(stage.clock.now())
    (order,) = shown(stage)["orders"]["found"]
    assert (order["order"], order["by"], order["because"], order["at"]) == ("release", "anna", "the bank called", given_at)
    assert (order["state"], order["result"], order["ended_at"]) == ("given", None, None)
    stage.service.clock.advance(2_000)
    ended_at = instant_text(stage.service.clock.now())
    stage.service.run()
    (order,) = shown(stage)["orders"]["found"]
    assert (order["state"], order["result"], order["text"]) == ("over", "done", "released 1 envelope")
    assert order["ended_at"] == ended_at
    page = stage.client.get("/unit", params={"id": "u"}).text
    (row,) = rows(page)
    assert "release" in row
    assert "anna" in row
    assert "the bank called" in row
    assert "done : released 1 envelope" in row
    marks = re.findall(r'<circle class="(?:order|outcome)".*?<title>(.*?)</title>', page)
    told_marks = [each.partition(": ")[2] for each in marks]
    assert told_marks == ["release ordered by anna: the bank called", "release: done: released 1 envelope"]


def test_the_orders_of_other_units_are_not_told(stage: Stage) -> None:
    stage.service.tell("v", 2)
    stage.service.run()
    stage.give(OrderKind.RELEASE)
    assert stage.client.get("/api/v1/unit", params={"id": "v"}).json()["orders"]["found"] == []
    assert "No order was given" not in stage.client.get("/unit", params={"id": "v"}).text, "only those of a week were read"
    assert "No order was given" in stage.client.get("/unit", params={"id": "v", "all": "1"}).text


def test_a_proposal_is_told_as_one_with_the_way_to_approve_it(tmp_path: Path) -> None:
    stage = Stage(tmp_path, approval=("release",), auth="basic")
    stage.give(OrderKind.RELEASE)
    page = stage.client.get("/unit", params={"id": "u"}).text
    assert "release proposed by anna: a test" in page
    assert '(<a href="/orders">to approve</a>)' in page


def test_orders_older_than_a_week_are_told_only_where_all_is_searched(stage: Stage) -> None:
    stage.give(OrderKind.RELEASE)
    stage.service.run()
    stage.clock.advance(7 * DAY + 1)
    assert shown(stage)["orders"]["found"] == []
    assert not shown(stage)["orders"]["is_complete"]
    every = stage.client.get("/api/v1/unit", params={"id": "u", "all": "true"}).json()["orders"]
    assert [each["result"] for each in every["found"]] == ["done"]
    assert every["is_complete"]


def test_a_unit_of_which_only_its_order_is_left_was_here(stage: Stage, tmp_path: Path) -> None:
    stage.give(OrderKind.RELEASE)
    stage.service.run()
    (tmp_path / "expired").mkdir()
    expired = StoredUnits(tmp_path / "expired")
    expired.put("another", b"", None, partition=P0)
    files = FileSettings(P0.topic, tmp_path / "in", tmp_path / "elsewhere")
    sources = make_sources(
        tmp_path,
        partitions=(P0,),
        clock=stage.clock,
        open_view=expired.open_view,
        open_orders=lambda: stage.book,
        open_dead_letters=lambda _, sign: FileDeadLetterStore(files, sign),
    )
    story = find_story(sources, nullcontext(expired.open_view()), "u", Search())
    assert (story.partition, story.is_known) == (None, True)
    assert any("An order for it was executed" in each for each in story.meaning)


def test_a_book_that_does_not_answer_is_told_of_in_the_story(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise TransportUnavailable("the brokers: no answer")

    monkeypatch.setattr(stage.book, "orders", fail)
    page = stage.client.get("/unit", params={"id": "u"})
    assert page.status_code == 200
    assert "Searched: no orders: the brokers: no answer." in page.text


def test_brokers_that_do_not_answer_are_not_asked_for_orders(tmp_path: Path) -> None:
    now = FakeClock().now()
    away = report(Identity(0, "conf", now), State.SOURCE_UNAVAILABLE, "", now)
    service = service_report([away], now, is_running=True)
    sources = make_sources(tmp_path, report=service, partitions=(P0,), open_orders=_never)
    story = find_story(sources, nullcontext(None), "u", Search())
    assert story.orders is not None
    assert story.orders.searched == "no orders, because the service says: source unavailable"


def _never() -> OrderFiles:
    raise AssertionError("the brokers were asked")


def test_the_newest_hundred_orders_are_told_the_oldest_first(tmp_path: Path) -> None:
    book = OrderFiles(tmp_path / "orders", tmp_path / "out", SystemFiles())
    now = FakeClock().now()
    for number in range(103):
        book.append(P0, _order(f"o{number}", now + number))
    found = find_orders(lambda: book, (P0,), "u", 0, now)
    assert [each.id for each in found.found] == [f"o{number}" for number in range(3, 103)]
    assert not found.is_complete
    assert found.searched == "the newest 100 of 103 in all orders"


def test_orders_stay_on_the_time_line_of_a_unit_with_hundreds_of_notifications() -> None:
    texts = [instant_text(BEGINNING + number) for number in range(300)]
    left = tuple(LeftNotification(f"n{at}", "E", "A", "p", (), at) for at in texts)
    shown = ListedOrder(P0, _order("o", BEGINNING + 299), OrderState.GIVEN, 0)
    story = UnitStory(
        "u",
        texts[-1],
        str(P0),
        (),
        DeadLetters((), is_complete=True, searched=""),
        Left(left, is_complete=True, searched=""),
        orders=UnitOrders((order_answer(shown),), is_complete=True, searched=""),
    )
    picture = timeline_of(story)
    assert picture is not None
    assert picture.text == "200 notifications, 1 order"


def _order(order_id: str, at: int) -> Order:
    return Order(id=order_id, kind=OrderKind.RETRY, by="anna", because="x", at=at, unit="u")


# In a shell


def test_units_show_tells_the_orders_of_the_unit(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stage.clock.at = SystemClock().now()
    stage.give(OrderKind.RELEASE, because="the bank\x1b[2J called")
    stage.service.clock.at = stage.clock.at + 1_000
    stage.service.run()
    show = _showing(stage, capsys)
    code, printed = show("u")
    assert code == 0
    at, ended_at = instant_text(stage.clock.at), instant_text(stage.service.clock.at)
    line = next(each for each in printed.splitlines() if each.startswith("order: "))
    expected = f"order: {at}  release u  by anna, because the bank\\x1b[2J called  done at {ended_at}: released 1 envelope  "
    assert line.startswith(expected)
    assert "orders searched: the orders since " in printed
    story = json.loads(show("u", "--json")[1])
    assert [(each["by"], each["result"]) for each in story["orders"]["found"]] == [("anna", "done")]


def _showing(stage: Stage, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    directory = stage.service.directory
    overrides = (
        f'{INGRESS}.file.directory="{directory / "in"}"',
        f"{NOTIFICATION}.orders.enabled=true",
        f'{NOTIFICATION}.orders.file.directory="{directory / "orders"}"',
        f'{NOTIFICATION}.file.directory="{directory / "out"}"',
        f'{NOTIFICATION}.storage.embedded.file="{stage.service.state_file}"',
    )

    def show(*arguments: str) -> tuple[int, str]:
        code = main(["units", "show", *arguments, *(part for each in overrides for part in ("--set", each))])
        return code, capsys.readouterr()[0]

    return show
