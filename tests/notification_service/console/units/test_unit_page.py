"""The page of one unit, and its payment data, as a browser gets them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from harness.console_stage import URL, http_settings, make_sources, without_times
from harness.driving import PARTITION, Driven, Envelopes
from harness.service_under_test import FakeClock
from harness.stored_units import StoredUnits
from starlette.testclient import TestClient

from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.orders import OrderFiles
from notification_service.connectors.files.settings import FileSettings
from notification_service.connectors.line_format import Line, encode_line
from notification_service.console.access.identity import Authenticator, Identity, NoLogin, Role
from notification_service.console.application import make_application
from notification_service.console.context import Console
from notification_service.console.unit_story import DeadLetters, Left, LeftNotification, UnitStory, Wait, timeline_of
from notification_service.status.report import CallsStatus, PartitionStatus, State, report
from notification_service.status.report import Identity as Worker
from notification_service.status.service_report import service_report
from notification_service.wiring.dead_letter_stores import FileDeadLetterStore
from notification_service.wiring.sent_notifications import OutputFiles
from resequencer.errors import TransientError
from resequencer.storage_port import StorageUnavailable, UnitChange, WaitKind, Waits
from resequencer.unit import Wake

EVIL = "<img src=x onerror=alert(1)>"


class Viewer:
    """Someone who may not see payment data."""

    challenge = None

    def find_claimed_name(self, connection: object) -> None:
        del connection

    async def find_identity(self, connection: object) -> Identity:
        del connection
        return Identity("ann", frozenset({Role.VIEWER}), sends_by_itself=False)


class Stage:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = FakeClock()
        self.units = StoredUnits(directory)
        (directory / "out").mkdir()
        files = FileSettings(PARTITION.topic, directory / "in", directory / "out")
        self.sources = make_sources(
            directory,
            open_view=self.units.open_view,
            partitions=[PARTITION],
            clock=self.clock,
            open_dead_letters=lambda asked_for, by: FileDeadLetterStore(files, by),
        )._replace(find_sent=OutputFiles(directory / "out", SystemFiles()).find_sent)

    def get(self, path: str, code: int = 200, login: Authenticator | None = None) -> str:
        console = Console(http_settings(self.directory), self.sources)
        answer = TestClient(make_application(console, login or NoLogin()), base_url=URL).get(path, follow_redirects=False)
        assert answer.status_code == code, answer.text
        return answer.text

    def drive(self) -> Driven:
        driven = Driven(self.sources.codec.strategy)
        driven.arrive(Envelopes()(3, mds=("PAIN_001",)))
        self.units.keep(driven)
        return driven

    @property
    def audited(self) -> list[dict[str, str]]:
        files = self.directory.glob("console-audit-*.jsonl")
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.units.close()


def test_a_waiting_unit_is_told_in_words_with_its_stash_and_the_search_that_was_made(stage: Stage) -> None:
    stage.drive()
    page = stage.get("/unit?id=uow-1")
    assert "for <strong>sequence:1</strong>" in page
    assert f"{PARTITION}@1" in page
    assert "Event3" in page
    assert "all notifications in" in page
    assert "Search them all" in page
    assert "Search them all" not in stage.get("/unit?id=uow-1&all=1")


def test_attempts_say_why_the_last_one_failed(stage: Stage) -> None:
    driven = Driven(stage.sources.codec.strategy)
    first = Envelopes()(1)
    driven.handler.fail(first, TransientError(f"no bank {EVIL}"))
    driven.arrive(first)
    stage.units.keep(driven)
    page = stage.get("/unit?id=uow-1")
    assert "no bank &lt;img" in page
    assert EVIL not in page
    seen = stage.get("/unit?id=uow-1", login=Viewer())
    assert "no bank" not in seen, "what a handler says may quote the payment"
    assert "TransientError (its text may quote the payment" in seen
    assert "no bank" not in stage.get("/api/v1/unit?id=uow-1", login=Viewer())


def test_a_unit_whose_handler_is_called_says_for_how_long_and_at_which_attempt(stage: Stage) -> None:
    driven = Driven(stage.sources.codec.strategy, waits=True)
    driven.arrive(Envelopes()(1))
    stage.units.keep(driven)
    driven.answer(TransientError("slow"))
    driven.wake(Wake.RETRY, 60_000)
    stage.units.keep(driven)
    stage.clock.advance(driven.now + 2_140 - stage.clock.now())
    now = stage.clock.now()
    held = PartitionStatus(str(PARTITION), 9, 9, 0, None)
    plain = msgspec.structs.replace(report(Worker(1, "c", now), State.READY, None, now), partitions=(held,))

    def report_calls(calls: CallsStatus) -> None:
        service = service_report([msgspec.structs.replace(plain, calls=calls)], now, is_running=True)
        stage.sources = stage.sources._replace(find_report=lambda: service)

    report_calls(CallsStatus(under_way=1))
    book = OrderFiles(stage.directory / "orders", stage.directory / "out", SystemFiles())
    stage.sources = stage.sources._replace(open_orders=lambda: book)
    page = stage.get("/unit?id=uow-1")
    assert "for <strong>its handler, attempt 2 of 3</strong>" in page
    assert "Its handler has been called for 2.1 s." in page
    assert "<dt>Attempts that failed</dt><dd>1</dd>" in page
    assert re.search(r"<dt>Call of its handler</dt><dd>since [-:0-9 ]+ \(2.1 s\)</dd>", without_times(page))
    assert "Next attempt" not in page
    assert ">handler called</text>" in page
    assert ">due</text>" not in page
    offered = re.findall(r'href="/orders/new\?kind=([a-z-]+)', page)
    assert offered == ["hold", "dead-letter"], "no order that a unit whose handler is called refuses"
    report_calls(CallsStatus(64, waiting=1))
    assert "for 2.1 s, or is not called yet: 1 call waits to begin." in stage.get("/unit?id=uow-1")
    report_calls(CallsStatus(0, 1, 1, lingering_units=("uow-1",)))
    assert "continues after its time-out: the next one begins when that has ended; the call of" in stage.get("/unit?id=uow-1")


def test_a_unit_that_is_not_there_is_not_found_and_the_page_says_what_that_means(stage: Stage) -> None:
    stage.drive()
    page = stage.get("/unit?id=" + "uow-9%3Cimg%20src=x%20onerror=alert(1)%3E", code=404)
    assert "has no state of this unit" in page
    assert "has expired" in page
    assert EVIL not in page


def test_an_overdue_unit_of_a_stopped_service_is_not_said_to_be_released(stage: Stage) -> None:
    stage.drive()
    stage.clock.advance(3_600_000)
    page = stage.get("/unit?id=uow-1")
    assert "The service does not run here: it waits until it is started; its deadline was 1970-01-01 " in without_times(page)
    assert " ago)." in page
    assert "it is released" not in page
    assert re.search(r"\dT\d\d:", without_times(page)) is None, "instants of one page have one format"
    assert f'<th scope="row" class="short">{PARTITION}@1</th>' in page


def test_a_unit_that_left_incomplete_is_not_shown_as_well(stage: Stage) -> None:
    driven = Driven(stage.sources.codec.strategy)
    driven.arrive(Envelopes()(2))
    driven.expire()
    stage.units.keep(driven)
    assert "The number 1 was given up." in stage.get("/unit?id=uow-1")
    value = b'{"CstmrPmtStsRpt":{"GrpHdr":{"CreDtTm":"1970-01-01T00:16:40Z"},"OrgnlGrpInfAndSts":{"GrpSts":"ACSP"}}}'
    line = Line(value, b"uow-1", (("event-name", b"E"), ("incomplete", b"sequence:1")))
    (stage.directory / "out" / "notifications.jsonl").write_bytes(encode_line(line))
    page = stage.get("/unit?id=uow-1")
    assert 'class="state ok"' not in page
    assert "Sent incomplete at 1970-01-01 00:16:40 (" in without_times(page)
    assert "without sequence:1." in page
    assert "<td>ACSP</td>" in page


def test_a_beginning_of_an_id_leads_to_the_waiting_units_that_begin_so(stage: Stage) -> None:
    stage.drive()
    console = Console(http_settings(stage.directory), stage.sources)
    console.waiting.refresh()
    console.close()
    page = stage.get("/unit?id=uow", code=404)
    assert '<a href="/waiting?id=uow">1 waiting unit</a> whose id begins with this text' in page
    assert "has an id that begins with this text" in stage.get("/unit?id=else", code=404)


def test_without_an_id_the_page_leads_to_what_waits(stage: Stage) -> None:
    assert stage.get("/unit?id=", code=303) == ""
    stage.get("/unit?id=" + "x" * 2_000, code=400)
    stage.get("/unit?id=x&partition=nothing", code=400)


def test_a_state_of_a_newer_version_is_told_and_does_not_fail(stage: Stage) -> None:
    state = msgspec.msgpack.encode((99, "SEQUENCE", (), b"", -1, None))
    stage.units.commit(UnitChange("uow-1", state, Waits(2, WaitKind.DEADLINE, 1, "sequence:2", "SEQUENCE", 1, 10)))
    page = stage.get("/unit?id=uow-1")
    assert "its state has format 99" in page
    assert "sequence:2" in page


def test_a_storage_that_is_unavailable_is_told_and_does_not_fail(stage: Stage) -> None:
    class Away:
        def find_unit(self, *_: object) -> None:
            raise StorageUnavailable("redis does not answer")

    stage.sources = stage.sources._replace(open_view=Away)
    assert "redis does not answer" in stage.get("/unit?id=uow-1")


def test_payment_data_is_masked_and_each_look_at_it_is_an_audit_line(stage: Stage) -> None:
    stage.drive()
    line = Line(b'{"secret": 1}', b"uow-1", (("event-name", b"E"),))
    (stage.directory / "out" / "notifications.jsonl").write_bytes(encode_line(line))
    page = stage.get("/unit?id=uow-1")
    assert "secret" not in page
    assert "processingContext" not in page
    assert stage.audited == []
    shown = stage.get(f"/unit/payment-data?id=uow-1&partition={PARTITION}")
    assert "processingContext" in shown
    assert [(each["action"], each["unit"], each["by"]) for each in stage.audited] == [("payment-data.look", "uow-1", "local")]


def test_payment_data_needs_its_role_and_a_refusal_shows_nothing(stage: Stage) -> None:
    stage.drive()
    assert "needs the role payments" in stage.get("/unit?id=uow-1", login=Viewer())
    refused = stage.get(f"/unit/payment-data?id=uow-1&partition={PARTITION}", code=403, login=Viewer())
    assert "processingContext" not in refused
    stage.get("/unit/payment-data?id=uow-1", code=400)
    stage.get(f"/unit/payment-data?id=uow-9&partition={PARTITION}", code=404)


def story_of(*sent: str, wait: bool = True) -> UnitStory:
    waits = Wait("sequence:2", "deadline", "2026-03-28T23:33:00Z", "2026-03-28T23:33:20Z", 1, 10) if wait else None
    notifications = tuple(LeftNotification("n", "E", "A", "p", (), at) for at in sent)
    nothing = DeadLetters((), is_complete=True, searched="")
    return UnitStory("u", "2026-03-28T23:33:10Z", "T-0", (), nothing, Left(notifications, is_complete=True, searched=""), waits)


def test_the_time_line_lies_within_its_picture_and_in_the_order_of_time() -> None:
    picture = timeline_of(story_of("2026-03-28T23:32:00Z", "2026-03-28T23:32:30Z", "no instant"))
    assert picture is not None
    assert [each.kind for each in picture.marks] == ["sent", "sent", "due"]
    places = [each.x for each in picture.marks]
    assert places == sorted(places)
    assert picture.left_edge == places[0] < places[-1] == picture.right_edge
    assert places[1] < picture.wait_x < picture.now_x < places[2]
    assert picture.text == "2 notifications, 1 due"


def test_without_two_instants_there_is_no_time_line() -> None:
    assert timeline_of(story_of(wait=False)) is None
    assert timeline_of(story_of("2026-03-28T23:32:00Z", wait=False)) is None
