"""Orders in the console: the pages, the forms, four eyes, and the API, over real files."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
from harness.console_stage import FORM, URL, client_of, http_settings, make_sources, token_on
from harness.service_under_test import P0, FakeClock, Service
from msgspec.structs import replace
from starlette.requests import HTTPConnection
from starlette.testclient import TestClient

from guardian.ports import TransportUnavailable
from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.orders import OrderFiles
from notification_service.connectors.files.settings import FileSettings
from notification_service.console import order_pages
from notification_service.console.access.identity import Identity, Role
from notification_service.console.application import make_application
from notification_service.console.context import Console
from notification_service.console.orders import list_orders
from notification_service.console.unit_story import waiting_order_text
from notification_service.status.report import Identity as Worker
from notification_service.status.report import State, report
from notification_service.status.service_report import service_report
from notification_service.wiring.dead_letter_stores import FileDeadLetterStore
from resequencer.clock import instant_text
from resequencer.order import Order, OrderKind
from resequencer.storage_port import StorageUnavailable
from resequencer.unit import Ordered
from storage.embedded.view import EmbeddedStorageView
from tests.notification_service.console.test_pages import HOSTILE

HOUR = 3_600_000


class Logins:
    """Lets the person in whom the test names."""

    def __init__(self) -> None:
        self.name, self.roles = "anna", frozenset({Role.VIEWER, Role.OPERATOR})

    @property
    def challenge(self) -> str | None:
        return None

    def find_claimed_name(self, connection: HTTPConnection) -> str | None:
        del connection
        return None

    async def find_identity(self, connection: HTTPConnection) -> Identity:
        del connection
        return Identity(self.name, self.roles, sends_by_itself=True)


class Stage:
    """A service on files in which `u` waits for number 1, and a console of the same directory."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.service = Service(directory, has_orders=True).start()
        self.service.tell("u", 2)
        self.service.run()
        self.book = OrderFiles(directory / "orders", directory / "out", SystemFiles())
        self.logins = Logins()
        now = self.service.clock.now()
        clock = FakeClock(now)
        files = FileSettings(P0.topic, directory / "in", directory / "out")
        self.clock = clock
        sources = make_sources(
            directory,
            report=service_report([report(Worker(1, "conf", now), State.READY, None, now)], now, is_running=True),
            open_view=lambda: EmbeddedStorageView(self.service.state_file),
            partitions=(P0,),
            clock=clock,
            open_orders=lambda: self.book,
            open_dead_letters=lambda _, sign: FileDeadLetterStore(files, sign),
        )
        self.console = Console(http_settings(directory, **settings), sources)
        application = make_application(self.console, self.logins)
        self.client = TestClient(application, base_url=URL, follow_redirects=False)

    def form_of(self, kind: OrderKind, **more: str) -> dict[str, str]:
        """Return the hidden fields of the form, as a browser sends them."""
        asked = {"kind": kind.value, "partition": str(P0), **({} if kind.is_of_partition else {"unit": "u"}), **more}
        page = self.client.get("/orders/new", params=asked)
        assert page.status_code == 200, page.text
        form = page.text.partition('action="/orders/give"')[2]
        return {name: html.unescape(value) for name, value in re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', form)}

    def give(self, ordered: OrderKind, **fields: str) -> Any:
        return self.client.post("/orders/give", data={**self.form_of(ordered), "because": "a test", **fields})

    def results(self) -> list[str]:
        return [each.outcome.result.value for each in self.book.outcomes([P0], 0)]

    def post(self, path: str, **fields: str) -> Any:
        return self.client.post(path, data={FORM: token_on(self.client, "/orders"), **fields})


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_the_page_of_a_waiting_unit_offers_what_fits_it(stage: Stage) -> None:
    page = stage.client.get("/unit", params={"id": "u"}).text
    for kind in ("release", "skip", "hold", "extend", "dead-letter"):
        assert f"kind={kind}&amp;unit=u" in page, kind
    assert "kind=retry" not in page
    assert "kind=resume" not in page


def test_a_viewer_is_offered_nothing_and_may_give_nothing(stage: Stage) -> None:
    stage.logins.roles = frozenset({Role.VIEWER})
    assert "/orders/new" not in stage.client.get("/unit", params={"id": "u"}).text
    assert stage.client.get("/orders").status_code == 200
    assert stage.client.get("/orders/new", params={"kind": "release", "unit": "u", "partition": str(P0)}).status_code == 403
    assert stage.client.post("/orders/give", data={"kind": "release"}).status_code == 403


def test_a_release_given_in_the_browser_is_executed_and_its_outcome_shown(stage: Stage) -> None:
    given = stage.give(OrderKind.RELEASE)
    assert given.status_code == 303
    (order,) = [each.order for each in stage.book.orders([P0], 0)]
    assert given.headers["location"] == f"/unit?id=u&partition={P0}#order-{order.id}"
    assert f'<tr id="order-{order.id}">' in stage.client.get(given.headers["location"]).text
    assert "<strong>given</strong>: no outcome yet" in stage.client.get("/orders").text
    stage.service.run()
    assert stage.service.sequences("u") == [2]
    page = stage.client.get("/orders", params={"unit": "u"}).text
    assert "<strong>done</strong>: released 1 envelope" in page
    assert "a test" in page
    assert "anna" in page


def test_an_order_that_waits_for_unread_records_says_so(stage: Stage) -> None:
    stage.service.plan = replace(stage.service.plan, batch_size=1)
    stage.service.restart()
    stage.service.tell("other", 1, 2, 3)
    end = (stage.service.directory / "in" / "partition-0.jsonl").stat().st_size
    stage.give(OrderKind.RELEASE)
    stage.service.cycle.run_once()
    at = instant_text(stage.service.clock.now())
    text = f"waits for the records up to offset {end:,} since {at}, until {instant_text(stage.service.clock.now() + 600_000)}"
    assert f"no outcome yet: {text} at most" in stage.client.get("/orders").text
    unit = stage.client.get("/unit", params={"id": "u"}).text
    assert f"release by anna {text} at most: a test" in unit
    assert "ordered: an operator's order waits for unread records" in unit
    for kind, is_offered in (("release", True), ("skip", True), ("hold", False), ("extend", False)):
        assert (f"kind={kind}&amp;unit=u" in unit) is is_offered, kind
    asked = {"kind": "release", "unit": "u", "partition": str(P0)}
    assert "An order for this unit waits for unread records" in stage.client.get("/orders/new", params=asked).text
    stage.service.run()
    assert "<strong>done</strong>: released 1 envelope" in stage.client.get("/orders").text


def test_how_many_records_an_order_waits_for_is_known_from_the_worker() -> None:
    order = Order(id="1", kind=OrderKind.SKIP, by="anna", because="why", at=1, unit="u", waits_for="sequence:1", since=1)
    waiting = Ordered(order, 7, 1_000, 790, 601_000)
    since = "since 1970-01-01T00:00:01.000Z, until 1970-01-01T00:10:01.000Z at most"
    assert waiting_order_text(waiting, 690, "offsets") == f"waits for 100 records {since}"
    assert waiting_order_text(waiting, 800, "bytes") == f"waits for 0 bytes {since}"


def test_a_storage_that_does_not_answer_hides_no_order(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise StorageUnavailable("no answer")

    stage.give(OrderKind.RELEASE)
    monkeypatch.setattr(EmbeddedStorageView, "find_unit", fail)
    assert "<strong>given</strong>: no outcome yet" in stage.client.get("/orders").text


def test_after_an_order_for_a_partition_the_orders_are_shown(stage: Stage) -> None:
    assert stage.give(OrderKind.PAUSE).headers["location"].startswith("/orders#order-")


def test_orders_are_filtered_by_kind(stage: Stage) -> None:
    stage.give(OrderKind.PAUSE)
    stage.give(OrderKind.EXTEND, until=instant_text(stage.clock.now() + HOUR))
    for kind, other in (("pause", "extend"), ("extend", "pause")):
        page = stage.client.get("/orders", params={"kind": kind}).text
        rows = page.partition("<tbody>")[2]
        assert f'<th scope="row">{kind} ' in rows
        assert f'<th scope="row">{other} ' not in rows
        assert f"<option selected>{kind}</option>" in page
        listed = stage.client.get("/api/v1/orders", params={"kind": kind}).json()["orders"]
        assert [each["order"] for each in listed] == [kind]
    assert stage.client.get("/api/v1/orders", params={"kind": "explode"}).status_code == 400


def test_what_the_person_saw_is_the_precondition(stage: Stage) -> None:
    form = stage.form_of(OrderKind.RELEASE)
    assert form["waits-for"] == "sequence:1"
    stage.service.tell("u", 1, 4)
    stage.service.run()
    stage.client.post("/orders/give", data={**form, "because": "too late"})
    stage.service.run()
    assert stage.results() == ["refused-changed"]


@pytest.mark.parametrize(
    ("kind", "fields", "result"),
    [
        (OrderKind.SKIP, {}, "done"),
        (OrderKind.EXTEND, {"until": "soon"}, "done"),
        (OrderKind.RETRY, {}, "refused-impossible"),
        (OrderKind.DEAD_LETTER, {"position": "0"}, "done"),
        (OrderKind.PAUSE, {}, "done"),
    ],
)
def test_each_order_reaches_its_owner(stage: Stage, kind: OrderKind, fields: dict[str, str], result: str) -> None:
    if "until" in fields:
        fields = {"until": instant_text(stage.clock.now() + HOUR)}
    assert stage.give(kind, **fields).status_code == 303
    stage.service.run()
    assert stage.results() == [result]


def test_a_held_unit_is_resumed_in_the_browser(stage: Stage) -> None:
    assert stage.give(OrderKind.HOLD, **{"for": "2h"}).status_code == 303
    stage.service.run()
    page = stage.client.get("/unit", params={"id": "u"}).text
    assert "kind=resume&amp;unit=u" in page
    assert "by anna since" in page
    assert stage.give(OrderKind.RESUME).status_code == 303
    stage.service.run()
    assert stage.results() == ["held-until-resumed", "done"]


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (OrderKind.RELEASE, {"because": " "}),
        (OrderKind.HOLD, {"for": "25h"}),
        (OrderKind.HOLD, {"for": "long"}),
        (OrderKind.EXTEND, {"until": "tomorrow"}),
        (OrderKind.DEAD_LETTER, {"position": "-1"}),
        (OrderKind.RELEASE, {"kind": "explode"}),
        (OrderKind.RELEASE, {"partition": "nowhere"}),
    ],
)
def test_a_wrong_field_is_refused_and_nothing_is_given(stage: Stage, kind: OrderKind, fields: dict[str, str]) -> None:
    assert stage.give(kind, **fields).status_code == 400
    assert stage.book.orders([P0], 0) == []


@pytest.mark.parametrize("partition", ["NOWHERE-0", "IPF_PROCESSING_DATA-99"])
def test_an_order_for_a_partition_that_the_input_has_not_is_refused(stage: Stage, partition: str) -> None:
    assert stage.give(OrderKind.PAUSE, partition=partition).status_code == 409
    assert not list(stage.service.directory.glob("orders/*"))


def test_a_form_of_another_site_or_sent_twice_gives_nothing(stage: Stage) -> None:
    form = {**stage.form_of(OrderKind.RELEASE), "because": "a test"}
    assert stage.client.post("/orders/give", data={**form, FORM: "forged"}).status_code == 403
    assert stage.client.post("/orders/give", data=form, headers={"origin": "http://evil.example"}).status_code == 403
    assert stage.client.post("/orders/give", data=form).status_code == 303
    assert stage.client.post("/orders/give", data=form).status_code == 403
    assert len(stage.book.orders([P0], 0)) == 1


def test_hostile_text_is_shown_as_text(stage: Stage) -> None:
    stage.give(OrderKind.RELEASE, because=HOSTILE)
    page = stage.client.get("/orders").text
    assert "<script>alert" not in page
    assert "\u202e" not in page


def test_each_order_is_a_line_of_the_audit_log(stage: Stage, tmp_path: Path) -> None:
    stage.give(OrderKind.RELEASE)
    (file,) = tmp_path.glob("console-audit-*.jsonl")
    (line,) = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    (order,) = [each.order for each in stage.book.orders([P0], 0)]
    assert (line["by"], line["action"], line["order"], line["because"]) == ("anna", "orders.release", order.id, "a test")
    assert "stage" not in line, "it is an order, and no proposal"


# Four eyes


@pytest.fixture
def with_approval(tmp_path: Path) -> Stage:
    return Stage(tmp_path, approval=("release",), auth="basic")


def test_an_order_that_needs_two_persons_waits_for_the_second_one(with_approval: Stage) -> None:
    stage = with_approval
    assert "another person has to approve it" in stage.client.get(
        "/orders/new", params={"kind": "release", "unit": "u", "partition": str(P0)}
    ).text  # fmt: skip
    stage.give(OrderKind.RELEASE)
    stage.service.run()
    assert stage.service.sequences("u") == []
    assert stage.results() == []
    (proposal,) = stage.book.orders([P0], 0)
    page = stage.client.get("/orders").text
    assert "1 proposal to approve" in page
    assert "/orders/approve" not in page
    assert stage.post("/orders/approve", id=proposal.order.id).status_code == 409
    stage.logins.name = "ben"
    assert "/orders/approve" in stage.client.get("/orders").text
    assert stage.post("/orders/approve", id=proposal.order.id).status_code == 303
    stage.service.run()
    assert stage.service.sequences("u") == [2]
    page = stage.client.get("/orders").text
    assert "approved by ben" in page
    assert "proposal to approve" not in page


def test_another_spelling_of_a_name_is_no_second_person(with_approval: Stage) -> None:
    stage = with_approval
    stage.give(OrderKind.RELEASE)
    (proposal,) = stage.book.orders([P0], 0)
    stage.logins.name = "Anna"
    page = stage.client.get("/orders").text
    assert "/orders/approve" not in page
    assert "Take back" in page
    refused = stage.post("/orders/approve", id=proposal.order.id)
    assert refused.status_code == 409
    assert "another person than the one who proposed it" in refused.text
    stage.service.run()
    assert stage.service.sequences("u") == []


def test_a_proposal_is_rejected_or_taken_back_and_then_cannot_be_approved(with_approval: Stage) -> None:
    stage = with_approval
    for name in ("ben", "anna"):
        stage.logins.name = "anna"
        stage.give(OrderKind.RELEASE)
        proposal = stage.book.orders([P0], 0)[-1]
        stage.clock.advance(1)
        stage.logins.name = name
        assert stage.post("/orders/reject", id=proposal.order.id, because="no").status_code == 303
        stage.logins.name = "ben"
        assert stage.client.get("/orders").text.count(f"rejected by {name}: no") == 1
        form = {FORM: token_on(stage.client, "/orders/new?kind=pause&partition=" + str(P0)), "id": proposal.order.id}
        assert stage.client.post("/orders/approve", data=form).status_code == 409


@pytest.mark.parametrize("first", ["approve", "reject"])
@pytest.mark.parametrize("second", ["approve", "reject"])
def test_of_two_people_who_decide_at_the_same_moment_the_first_one_does_and_the_other_is_told(
    with_approval: Stage, monkeypatch: pytest.MonkeyPatch, first: str, second: str
) -> None:
    stage = with_approval
    stage.give(OrderKind.RELEASE)
    (proposal,) = list_orders(stage.book.orders([P0], 0), (), stage.clock.now())
    stage.clock.advance(1)
    monkeypatch.setattr(order_pages, "recent_orders", lambda *_: [proposal])  # Both have read it before one of them decided.
    stage.logins.name = "ben"
    assert stage.post(f"/orders/{first}", id=proposal.order.id, because="no").status_code == 303
    stage.logins.name = "cleo"
    form = {FORM: token_on(stage.client, f"/orders/new?kind=pause&partition={P0}"), "id": proposal.order.id, "because": "no"}
    late = stage.client.post(f"/orders/{second}", data=form)
    assert late.status_code == 409
    assert ("approved by ben" if first == "approve" else "rejected by ben") in late.text
    stage.service.run()
    assert stage.service.sequences("u") == ([2] if first == "approve" else [])
    assert stage.results() == [*(["done"] if first == "approve" else []), *(["refused-decided"] if second == "approve" else [])]
    monkeypatch.undo()
    stage.logins.name = "anna"
    page = stage.client.get("/orders").text
    assert page.count(f'id="order-{proposal.order.id}"') == 1
    assert ("approved by ben" if first == "approve" else "rejected by ben: no") in page
    assert "cleo" not in page.partition("<main")[2]


def test_a_proposal_expires(with_approval: Stage) -> None:
    stage = with_approval
    stage.give(OrderKind.RELEASE)
    (proposal,) = stage.book.orders([P0], 0)
    stage.logins.name = "ben"
    stage.clock.advance(24 * HOUR)
    token = token_on(stage.client, "/orders")
    stage.clock.advance(1)
    assert "<strong>expired</strong>" in stage.client.get("/orders").text
    assert stage.client.post("/orders/approve", data={FORM: token, "id": proposal.order.id}).status_code == 409


def test_a_proposal_of_a_clock_that_was_ahead_is_no_proposal_any_more_once_the_clock_is_right(with_approval: Stage) -> None:
    """Before, it was open until a day after its instant, also when its rejection was too old to be read."""
    stage = with_approval
    stage.clock.advance(365 * 24 * HOUR)
    stage.give(OrderKind.RELEASE)
    (proposal,) = stage.book.orders([P0], 0)
    stage.clock.advance(-365 * 24 * HOUR)
    stage.logins.name = "ben"
    token = token_on(stage.client, f"/orders/new?kind=pause&partition={P0}")
    assert "<strong>expired</strong>" in stage.client.get("/orders").text
    assert stage.client.post("/orders/approve", data={FORM: token, "id": proposal.order.id}).status_code == 409


def audited(stage: Stage) -> list[dict[str, Any]]:
    files = sorted(stage.service.directory.glob("console-audit-*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def decide(stage: Stage, decision: str, **body: str) -> Any:
    headers = {"x-form-token": stage.client.get("/api/v1/token").json()["token"]}
    return stage.client.post(f"/api/v1/order/{decision}", json=body, headers=headers)


def test_the_audit_log_tells_a_proposal_from_an_order_and_names_it_in_its_approval(with_approval: Stage) -> None:
    stage = with_approval
    stage.give(OrderKind.RELEASE)
    (proposal,) = [each.order for each in stage.book.orders([P0], 0)]
    stage.logins.name = "ben"
    assert stage.post("/orders/approve", id=proposal.id).status_code == 303
    proposed, approved = audited(stage)
    assert (proposed["action"], proposed["stage"], proposed["order"], proposed["by"]) == (
        "orders.release",
        "proposed",
        proposal.id,
        "anna",
    )
    assert (approved["action"], approved["proposal"], approved["by"], approved["proposed_by"]) == (
        "orders.approve",
        proposal.id,
        "ben",
        "anna",
    )
    assert (approved["kind"], approved["unit"], approved["because"]) == ("release", "u", "a test")


def test_a_program_approves_what_another_person_proposed(with_approval: Stage) -> None:
    stage = with_approval
    stage.give(OrderKind.RELEASE)
    (proposal,) = [each.order for each in stage.book.orders([P0], 0)]
    own = decide(stage, "approve", id=proposal.id)
    assert (own.status_code, "another person" in own.json()["error"]) == (409, True)
    stage.logins.name = "robot"
    assert decide(stage, "approve", id="no-such-order").status_code == 404
    stage.logins.roles = frozenset({Role.VIEWER})
    assert decide(stage, "approve", id=proposal.id).status_code == 403
    stage.logins.roles = frozenset({Role.OPERATOR})
    approved = decide(stage, "approve", id=proposal.id)
    assert (approved.status_code, approved.json()) == (200, {"id": proposal.id, "is_proposal": False})
    stage.service.run()
    assert stage.service.sequences("u") == [2]
    (listed,) = stage.client.get("/api/v1/orders").json()["orders"]
    assert (listed["by"], listed["approved_by"], listed["result"]) == ("anna", "robot", "done")
    again = decide(stage, "approve", id=proposal.id)
    assert (again.status_code, "does not wait for an approval" in again.json()["error"]) == (409, True)


def test_a_program_rejects_a_proposal_with_a_reason(with_approval: Stage) -> None:
    stage = with_approval
    stage.give(OrderKind.RELEASE)
    (proposal,) = [each.order for each in stage.book.orders([P0], 0)]
    stage.logins.name = "robot"
    assert decide(stage, "reject", id=proposal.id).status_code == 400
    stage.clock.advance(1)
    rejected = decide(stage, "reject", id=proposal.id, because="the bank has confirmed it")
    assert (rejected.status_code, rejected.json()) == (200, {"id": proposal.id, "is_proposal": False})
    (listed,) = stage.client.get("/api/v1/orders", params={"state": "rejected"}).json()["orders"]
    assert listed["text"] == "rejected by robot: the bank has confirmed it"
    assert decide(stage, "approve", id=proposal.id).status_code == 409
    stage.service.run()
    assert (stage.service.sequences("u"), stage.results()) == ([], [])
    line = audited(stage)[1]
    assert (line["action"], line["proposal"], line["because"]) == ("orders.reject", proposal.id, "the bank has confirmed it")


def test_the_overview_says_that_an_order_waits_for_a_second_person(with_approval: Stage) -> None:
    stage = with_approval

    def overview() -> str:
        stage.console.sampler.count_proposals()
        return stage.client.get("/").text

    assert "second person" not in overview()
    stage.give(OrderKind.RELEASE)
    assert '<a href="/orders?state=proposed">1 order</a> waits for the approval of a second person' in overview()
    stage.clock.advance(24 * HOUR + 1)
    assert "second person" not in overview(), "it has expired"
    stage.give(OrderKind.RELEASE)
    stage.clock.advance(1)
    stage.give(OrderKind.RELEASE)
    assert ">2 orders</a> wait for" in overview()
    for each in stage.book.orders([P0], stage.clock.now() - HOUR):
        stage.logins.name = "ben"
        assert stage.post("/orders/approve", id=each.order.id).status_code == 303
    assert "second person" not in overview()


def test_proposals_that_cannot_be_read_are_not_told_as_none(with_approval: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = with_approval
    stage.give(OrderKind.RELEASE)
    stage.console.sampler.count_proposals()
    assert stage.console.sampler.open_proposals == 1

    def fail(*_: Any) -> Any:
        raise TransportUnavailable("the brokers: no answer")

    monkeypatch.setattr(stage.book, "orders", fail)
    stage.console.sampler.count_proposals()
    assert stage.console.sampler.open_proposals is None


def test_without_approval_the_orders_are_not_read_for_proposals(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise AssertionError("they were read")

    monkeypatch.setattr(stage.book, "orders", fail)
    stage.console.sampler.count_proposals()
    assert stage.console.sampler.open_proposals is None


# Where there are no orders


def test_without_orders_the_page_says_which_key_to_set(tmp_path: Path) -> None:
    client = client_of(make_sources(tmp_path))
    page = client.get("/orders")
    assert page.status_code == 409
    assert "orders.enabled" in page.text


def test_a_book_that_does_not_answer_is_told_of(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise TransportUnavailable("the brokers: no answer")

    monkeypatch.setattr(stage.book, "orders", fail)
    page = stage.client.get("/orders")
    assert page.status_code == 503
    assert "the brokers: no answer" in page.text


def test_a_program_gives_an_order_and_reads_what_came_of_it(stage: Stage) -> None:
    wait = stage.client.get("/api/v1/unit", params={"id": "u"}).json()["wait"]
    new = {
        "order": "release",
        "partition": str(P0),
        "unit": "u",
        "because": "a program",
        "waits_for": wait["waits_for"],
        "since": wait["since"],
    }
    token = token_on(stage.client, "/orders/new?kind=hold&unit=u&partition=" + str(P0))
    given = stage.client.post("/api/v1/order", json=new, headers={"x-form-token": token})
    assert given.status_code == 200, given.text
    stage.service.run()
    (listed,) = stage.client.get("/api/v1/orders").json()["orders"]
    assert (listed["id"], listed["state"], listed["result"]) == (given.json()["id"], "over", "done")
