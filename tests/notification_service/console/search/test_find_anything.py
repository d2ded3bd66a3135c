"""The one search: what it finds of each kind of id, what it says was searched, and who may look for payments."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import pytest
from harness.console_stage import http_settings
from harness.counted_groups import GroupStage
from harness.driving import PARTITION, Envelopes
from harness.ledger_stage import LedgerStage, item
from harness.receivers import receiver
from msgspec.structs import replace
from starlette.testclient import TestClient

from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.line_format import Line, encode_line
from notification_service.console.access.identity import AuditLogUnavailable, NoLogin, Role
from notification_service.console.application import make_application
from notification_service.console.context import Console
from notification_service.console.find_unit import NOT_STORED
from notification_service.console.search.find import FindAnswer, GroupsFound, Reach, find
from notification_service.console.sources import Sources
from notification_service.console.unit_story import UnitsFound
from notification_service.status.report import Identity, State, UnitWait, report
from notification_service.status.service_report import service_report
from notification_service.wiring.sent_notifications import OutputFiles
from resequencer.record import Origin
from tests.notification_service.console.groups.test_group_pages import Person
from tests.notification_service.console.units.test_find_story import Stage

NOTIFICATION = "N" * 32
END_TO_END = "INVOICE-4711"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    made.sources = made.sources._replace(find_sent_by=OutputFiles(made.out, SystemFiles()).find_sent_by)
    yield made
    made.units.close()


class Finder:
    """Searches over the sources of a stage. `noted` counts how often the audit log was written to."""

    def __init__(self, stage: Stage, sources: Sources | None = None) -> None:
        self.stage, self.sources, self.noted = stage, sources or stage.sources, 0
        self.ledger: Any = None
        self.may_see = self.has_view = True

    def find(self, text: str, *, is_all: bool = False) -> FindAnswer:
        def viewing() -> Any:
            return nullcontext(self.stage.units.open_view() if self.has_view else None)

        note = self.note if self.may_see else None
        reach = Reach(self.sources, viewing, lambda _: GroupsFound((), "no group"), self.ledger, note)
        return find(reach, text, is_all=is_all)

    def note(self) -> None:
        self.noted += 1


def hits(answer: FindAnswer) -> list[tuple[str, str, str]]:
    return [(each.kind, each.id, each.page) for each in answer.found]


def read(answer: FindAnswer, what: str) -> str:
    return "; ".join(each.text for each in answer.searched if each.what == what)


def keep_waiting(stage: Stage, mds: Sequence[str] = ()) -> None:
    driven = stage.driven()
    driven.arrive(Envelopes()(2, mds=mds))
    stage.units.keep(driven)


def notify(stage: Stage, unit: str) -> None:
    transaction = {"OrgnlEndToEndId": END_TO_END, "TxSts": "ACSC"}
    value = json.dumps({"CstmrPmtStsRpt": {"OrgnlPmtInfAndSts": [{"TxInfAndSts": [transaction]}]}}).encode()
    line = Line(value, unit.encode(), (("notification-id", NOTIFICATION.encode()),))
    with (stage.out / "notifications.jsonl").open("ab") as file:
        file.write(encode_line(line, number=f"{PARTITION}#1"))


def test_a_unit_that_waits_is_found_without_reading_what_was_sent(stage: Stage) -> None:
    keep_waiting(stage)
    sources = stage.sources._replace(find_sent=NotImplemented, find_sent_by=NotImplemented)
    answer = Finder(stage, sources).find("uow-1")
    assert hits(answer) == [("unit", "uow-1", "/unit?id=uow-1")]
    assert answer.found[0].text.startswith("waits for sequence:1 since ")
    assert answer.found[0].command == "resequencer units show uow-1"
    assert read(answer, "other places") == "not searched, because it was found"


def test_a_unit_without_a_state_is_found_by_what_was_sent_and_by_its_dead_letters(stage: Stage) -> None:
    notify(stage, "uow-7")
    stage.set_aside("uow-7", 3)
    answer = Finder(stage).find("uow-7")
    assert hits(answer) == [("unit", "uow-7", "/unit?id=uow-7")]
    assert answer.found[0].text == "no state in the storage; 1 notification sent, 1 dead letter"


def test_a_notification_leads_to_its_unit(stage: Stage) -> None:
    notify(stage, "uow-7")
    assert hits(Finder(stage).find(NOTIFICATION)) == [("notification", NOTIFICATION, "/unit?id=uow-7")]
    assert "has 32 characters" in read(Finder(stage).find("n1"), "notification")


def test_a_dead_letter_is_found_by_its_number_and_by_the_position_of_its_record(stage: Stage) -> None:
    stage.set_aside("uow-7", 3)
    number = f"{PARTITION}#3"
    (found,) = Finder(stage).find(number).found
    assert (found.kind, found.id) == ("dead-letter", number)
    assert found.page == f"/dead-letter?number={PARTITION}%233"
    assert found.text == "handler-failed of unit uow-7, at 2026-03-28T23:33:55.941Z"
    assert ("dead-letter", number) in [each[:2] for each in hits(Finder(stage).find(f"{PARTITION}@7"))]
    assert hits(Finder(stage).find(f"{PARTITION}#4")) == []


def test_the_record_at_a_position_leads_to_its_unit(stage: Stage) -> None:
    asked: list[Origin] = []

    def find_unit_at(origin: Origin, seconds: float) -> UnitsFound:
        del seconds
        asked.append(origin)
        return UnitsFound(("uow-7",), is_complete=True, searched=f"the record at {origin}")

    answer = Finder(stage, stage.sources._replace(find_unit_at=find_unit_at)).find(f"{PARTITION}@12")
    assert hits(answer) == [("record", f"{PARTITION}@12", "/unit?id=uow-7")]
    assert asked == [Origin(PARTITION, 12)]


@pytest.mark.parametrize("text", ["A", "A-1"])
def test_the_ledger_knows_a_unit_and_a_notification_that_are_nowhere_else(stage: Stage, tmp_path: Path, text: str) -> None:
    with closing(LedgerStage(f"sqlite:///{tmp_path / 'ledger.db'}", receiver())) as delivered:
        delivered.take(item("A", 1), item("B", 1))
        delivered.deliver_all()
        finder = Finder(stage)
        finder.ledger = delivered.ledger
        (found,) = finder.find(text).found
    assert found.page == "/unit?id=A"
    assert "processed at the receiver r" in found.text


def test_a_payment_is_found_by_its_end_to_end_id_among_what_waits_and_what_was_sent(stage: Stage) -> None:
    notify(stage, "uow-7")
    finder = Finder(stage)
    assert hits(finder.find(END_TO_END)) == [("unit", "uow-7", "/unit?id=uow-7")]
    assert finder.noted == 1
    keep_waiting(stage, mds=("PAIN_001_PAYMENT_TRANSACTION",))
    answer = finder.find("E2E-1")
    assert "the payment data of 1 waiting unit" in read(answer, "EndToEndId")


def test_without_the_role_payments_no_end_to_end_id_is_looked_for(stage: Stage) -> None:
    notify(stage, "uow-7")
    finder = Finder(stage)
    finder.may_see = False
    answer = finder.find(END_TO_END)
    assert answer.found == ()
    assert read(answer, "EndToEndId") == "not searched: it needs the role payments"


def test_a_look_that_cannot_be_noted_is_not_made(stage: Stage) -> None:
    sources = stage.sources._replace(find_sent_by=NotImplemented)
    finder = Finder(stage, sources)

    def fails() -> None:
        raise AuditLogUnavailable(Path("log"), OSError(28, "No space left on device"))

    finder.note = fails  # type: ignore[method-assign]
    with pytest.raises(AuditLogUnavailable):
        finder.find(END_TO_END)


def test_what_cannot_be_searched_says_what_would_make_it_possible(stage: Stage) -> None:
    on_kafka = Sources._field_defaults
    sources = stage.sources._replace(find_sent=on_kafka["find_sent"], find_sent_by=on_kafka["find_sent_by"])
    answer = Finder(stage, sources).find(NOTIFICATION)
    assert answer.found == ()
    assert "`archive-topics` makes a copy to search" in read(answer, "notification")
    assert "`archive-topics` makes a copy to search" in read(answer, "unit of work")
    assert "policy = ledger" in read(answer, "delivery")
    assert any("its id is spelt otherwise" in each for each in answer.meaning)


def test_an_id_of_another_system_is_quoted_in_the_command(stage: Stage) -> None:
    notify(stage, "a'; rm b")
    (found,) = Finder(stage).find("a'; rm b").found
    assert found.command == """resequencer units show 'a'"'"'; rm b'"""


def test_brokers_that_the_service_finds_unavailable_are_not_asked(stage: Stage) -> None:
    now = stage.sources.clock.now()
    away = report(Identity(1, "c", now), State.SOURCE_UNAVAILABLE, "the brokers do not answer", now)
    found = service_report([away], now, is_running=True)
    sources = stage.sources._replace(find_report=lambda: found, open_dead_letters=NotImplemented, find_unit_at=NotImplemented)
    for text, what in ((f"{PARTITION}#3", "dead letter (number)"), (f"{PARTITION}@3", "record (position)")):
        assert read(Finder(stage, sources).find(text), what).startswith("not searched, because the service says: ")


def test_with_storage_none_the_oldest_waits_are_searched_and_it_is_said_that_there_may_be_others(stage: Stage) -> None:
    now = stage.sources.clock.now()
    wait = UnitWait("uow-9", str(PARTITION), "sequence:2", "deadline", "2026-03-28T23:00:00Z", "2026-03-28T23:30:00Z", 1)
    waits = replace(report(Identity(1, "c", now), State.READY, None, now), oldest_waits=(wait,))
    found = service_report([waits], now, is_running=True)
    finder = Finder(stage, stage.sources._replace(find_report=lambda: found, open_view=None))
    finder.has_view = False
    answer = finder.find("uow-9")
    assert hits(answer) == [("unit", "uow-9", "/unit?id=uow-9")]
    assert answer.problems == (NOT_STORED,)
    assert finder.find("uow-10").problems == (NOT_STORED,)


class Page:
    """A console over the sources of a stage, and groups."""

    def __init__(self, stage: Stage, directory: Path) -> None:
        self.groups = GroupStage(directory / "groups")
        self.console = Console(http_settings(directory), stage.sources._replace(groups=self.groups))
        self.directory = directory

    def client(self, *roles: Role) -> TestClient:
        login: Any = Person(*roles) if roles else NoLogin()
        return TestClient(make_application(self.console, login), base_url="http://127.0.0.1:8080", follow_redirects=False)

    def audit_log(self) -> str:
        return "".join(each.read_text() for each in self.directory.glob("console-audit-*.jsonl"))


@pytest.fixture
def page(stage: Stage, tmp_path: Path) -> Iterator[Page]:
    made = Page(stage, tmp_path)
    yield made
    made.console.close()
    made.groups.close()


def test_the_only_result_is_shown_at_once_and_several_are_listed(stage: Stage, page: Page) -> None:
    keep_waiting(stage)
    page.groups.status("KEY", "uow-1")
    page.groups.count()
    assert page.console.groups is not None
    page.console.groups.watch.refresh()
    client = page.client()
    assert client.get("/find", params={"text": " uow-1 "}).headers["location"] == "/unit?id=uow-1"
    assert client.get("/find", params={"text": "M-KEY"}).headers["location"] == "/groups/KEY"
    assert client.get("/find", params={"text": "KEY"}).headers["location"] == "/groups/KEY"
    everywhere = client.get("/find", params={"text": "uow-1", "all": "1"})
    assert everywhere.status_code == 200
    assert '<a href="/unit?id=uow-1">uow-1</a>' in everywhere.text
    assert client.get("/find", params={"text": ""}).headers["location"] == "/waiting"


def test_each_page_has_the_search_in_its_header(page: Page) -> None:
    for path in ("/", "/waiting", "/groups"):
        assert '<form class="find" action="/find" method="get" role="search">' in page.client().get(path).text


def test_a_page_without_results_says_what_was_searched_and_does_not_repeat_itself(page: Page) -> None:
    assert page.console.groups is not None
    page.console.groups.watch.refresh()
    found = page.client().get("/find", params={"text": "<b>unknown"})
    assert found.status_code == 404
    assert "Nothing with this id was found." in found.text
    assert "all groups by key and by message id" in found.text
    assert "data-still" in found.text  # Otherwise the page would fetch itself again, and each time note the look.
    assert "<b>unknown" not in found.text


def test_a_look_for_an_end_to_end_id_is_in_the_audit_log_and_needs_the_role(stage: Stage, page: Page) -> None:
    notify(stage, "uow-7")
    path = f"/api/v1/find?text={END_TO_END}"
    viewer = page.client(Role.VIEWER).get(path).json()
    assert (viewer["found"], page.audit_log()) == ([], "")
    assert page.client(Role.VIEWER, Role.PAYMENTS).get(path).json()["found"][0]["id"] == "uow-7"
    noted = json.loads(page.audit_log())
    assert (noted["action"], noted["text"], noted["by"]) == ("find.end-to-end-id", END_TO_END, "vera")
