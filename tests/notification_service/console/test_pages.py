"""What the pages show, and what their forms do: over real files and SQLite, without a running service."""

from __future__ import annotations

import csv
import html
import re
from importlib import metadata
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from harness.console_stage import FORM, Workers, client_of, make_sources, text_of, token_on, without_times
from harness.service_under_test import BEGINNING
from starlette.testclient import TestClient

from notification_service.connectors.dead_letters.port import AskedFor, DeadLetterStore, Sign
from notification_service.connectors.files.settings import FileSettings
from notification_service.connectors.line_format import Line, encode_line
from notification_service.console.context import TEMPLATES
from notification_service.console.dead_letters import short_number
from notification_service.delivery.core.backlog import make_backlog
from notification_service.status.aggregation import AggregationStatus, StoreStatus
from notification_service.status.delivery import DeliveryStatus, GateStatus
from notification_service.status.file import SideStatus
from notification_service.status.report import (
    CallsStatus,
    PartitionStatus,
    ServerStatus,
    State,
    StatusReport,
    Units,
    UnitWait,
    UntakenPartition,
)
from notification_service.status.service_report import ServiceReport, service_report
from notification_service.wiring.dead_letter_stores import FileDeadLetterStore
from resequencer.clock import instant_text
from resequencer.event import FIRST_FORMAT
from resequencer.record import Partition

HOSTILE = "<script>alert(1)</script>\u202e\x1b[31m"


def a_report(**changed: object) -> StatusReport:
    at = instant_text(BEGINNING)
    return StatusReport(State.READY, None, 1, "x.conf", at, at, worker_process_id=2, **changed)  # type: ignore[arg-type]


def test_the_overview_says_what_is_unavailable_and_what_is_noted(tmp_path: Path) -> None:
    report = a_report(notes=("T-1 stands still",), units=Units(3, 2, 5))
    service = service_report([report], BEGINNING, is_running=True)
    client = client_of(make_sources(tmp_path, report=service))
    page = client.get("/").text
    assert "<strong>ready</strong>" in page
    assert "T-1 stands still" in page


def test_the_overview_of_a_stopped_service_shows_the_lag_of_now_and_no_server_that_answers(tmp_path: Path) -> None:
    at = instant_text(BEGINNING)
    held = PartitionStatus("T-0", 40, 40, 0, None, lag=0)
    report = a_report(partitions=(held,), servers={"storage": ServerStatus(is_available=True, since=at)}, units=Units(waiting=2))
    service = service_report([report], BEGINNING, is_running=False)
    page = client_of(make_sources(tmp_path, report=service, partitions=(Partition("T", 0),))).get("/").text
    assert "The service does not run here" in page
    assert "✓ answers" not in page
    assert '<a href="/partitions">0</a>' not in page
    workers = client_of(make_sources(tmp_path, report=service)).get("/workers").text
    assert "Restart worker" not in workers
    assert "the service does not run" in workers


def test_the_overview_of_a_ready_service_says_which_receivers_and_stores_are_late(tmp_path: Path) -> None:
    long_ago = instant_text(BEGINNING - 3_600_000)
    shut = GateStatus("bank", False, 78_000, "HTTP 503: <b>", long_ago, long_ago, backlog=make_backlog(78_000, long_ago, 9.0))
    workers = SideStatus(0, 7, None), SideStatus(1, None, "it is <starting>")
    store = StoreStatus("payments", behind=None, problem="no answer", pending_since=long_ago)
    sources = make_sources(tmp_path, report=service_report([a_report()], BEGINNING, is_running=True))._replace(
        find_delivery=lambda: DeliveryStatus(workers, (shut,)), find_aggregation=lambda: AggregationStatus((), (store,))
    )
    page = client_of(sources).get("/").text
    text = text_of(page)
    assert "Delivery : receiver bank gets nothing since 2026-03-28 22:20:00; undelivered: 78,000 rows" in text
    assert "Delivery worker 1 does not deliver now: it is <starting>" in text
    assert "Groups : the store payments is late: of what came before 2026-03-28 22:20:00 something is not counted yet" in text
    assert "Not delivered yet 78,000 Oldest of these 1 h 0 min" in text
    assert "503" not in page
    assert "Not delivered yet" not in client_of(make_sources(tmp_path)).get("/").text


def test_the_overview_says_what_orders_rest_on(tmp_path: Path) -> None:
    at = instant_text(BEGINNING)
    paused = PartitionStatus("T-0", 40, 40, 0, None, paused_by="anna <b>", paused_since=at)
    report = a_report(partitions=(paused, PartitionStatus("T-1", 40, 40, 0, None)), units=Units(waiting=3, held=2))
    page = client_of(make_sources(tmp_path, report=service_report([report], BEGINNING, is_running=True))).get("/").text
    assert '<a href="/partitions">T-0</a> is paused by anna &lt;b&gt; since 2026-' in without_times(page)
    assert '<a href="/partitions">T-1</a> is paused' not in page
    assert '<a href="/waiting?kind=held">2</a>' in page
    stopped = client_of(make_sources(tmp_path, report=service_report([report], BEGINNING, is_running=False))).get("/").text
    assert "is paused by" not in stopped
    plain = service_report([a_report(units=Units(waiting=3))], BEGINNING, is_running=True)
    assert "kind=held" not in client_of(make_sources(tmp_path, report=plain)).get("/").text


def test_the_calls_of_a_handler_that_waits_are_on_the_overview_and_beside_their_worker(tmp_path: Path) -> None:
    report = a_report(calls=CallsStatus(12, 3, 2, "u&7", 2_149, ("u-1",)), counts={"timeouts": 4})
    client = client_of(make_sources(tmp_path, report=service_report([report], BEGINNING, is_running=True)))
    page, workers = client.get("/").text, client.get("/workers").text
    assert '<dt>Calls under way</dt><dd><a href="/waiting?kind=call">12</a></dd>' in page
    assert "<dt>Calls that wait to begin</dt><dd>3</dd>" in page
    assert '<dt>Longest call</dt><dd><a href="/unit?id=u%267">2.1 s</a></dd>' in page
    assert "<dt>Calls that timed out</dt><dd>4</dd>" in page
    assert '2 calls continue after their time-out: <a href="/unit?id=u-1">u-1</a> and 1 more. No other call of' in page
    calls = (
        'the longest for 2.1 s (<a href="/unit?id=u%267">u&amp;7</a>), 3 waiting to begin, 4 time-outs; 2 calls continue after'
    )
    assert calls in workers
    stopped = client_of(make_sources(tmp_path, report=service_report([report], BEGINNING, is_running=False)))
    assert "continue after" not in stopped.get("/").text + stopped.get("/workers").text
    plain = client_of(make_sources(tmp_path, report=service_report([a_report()], BEGINNING, is_running=True)))
    assert "Calls" not in plain.get("/").text + plain.get("/workers").text


def test_without_a_service_the_overview_says_so(tmp_path: Path) -> None:
    assert "No service has reported here yet" in client_of(make_sources(tmp_path)).get("/").text


def test_before_the_first_report_the_pages_say_that_the_service_is_starting(tmp_path: Path) -> None:
    whole = msgspec.structs.replace(a_report(), state=State.STARTING, reason="no worker has reported yet")
    client = client_of(make_sources(tmp_path, report=ServiceReport(State.STARTING, whole, ())))
    assert "<strong>starting</strong>: no worker has reported yet" in client.get("/").text
    assert "The service is starting: no worker has reported yet" in client.get("/workers").text
    for path in ("/", "/partitions", "/workers", "/waiting"):
        assert "does not run" not in client.get(path).text, path
    assert client.get("/api/v1/service").json()["state"] == "starting"


def test_pages_that_listen_leave_connections_for_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("notification_service.console.context.MAX_LISTENERS", 0)
    client = client_of(make_sources(tmp_path))
    assert client.get("/events").status_code == 503
    assert client.get("/").status_code == 200


def test_ids_full_of_html_and_escapes_are_shown_as_text(tmp_path: Path) -> None:
    held = PartitionStatus(f"{HOSTILE}-0", 1, 1, 0, None)
    wait = UnitWait(HOSTILE, "T-0", HOSTILE, "deadline", instant_text(BEGINNING), instant_text(BEGINNING), 1)
    report = a_report(partitions=(held,), oldest_waits=(wait,), notes=(HOSTILE,), last_exit=HOSTILE)
    client = client_of(make_sources(tmp_path, report=service_report([report], BEGINNING, is_running=True)))
    for path in ("/", "/partitions", "/workers"):
        page = client.get(path).text
        assert "<script>alert" not in page
        assert "\u202e" not in page
        assert "\x1b" not in page
        assert "&lt;script&gt;alert(1)" in page, path


def test_the_partitions_page_has_the_lag_of_a_partition_that_is_not_held(tmp_path: Path) -> None:
    untaken = UntakenPartition("T-1", "storage", "no answer", instant_text(BEGINNING))
    report = a_report(partitions=(PartitionStatus("T-0", 90, 80, 3, 80),), untaken=(untaken,))
    service = service_report([report], BEGINNING, is_running=True)
    client = client_of(make_sources(tmp_path, report=service, partitions=(Partition("T", 0), Partition("T", 1))))
    page = client.get("/partitions").text
    rows = [re.sub(r"<[^>]+>", " ", row).split() for row in re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)]
    assert ["T-0", "0", "90", "100", "10", "80", "10", "3", "offset", "80"] in rows
    assert ["T-1", "–", "–", "100", "unknown", "–", "–", "–", "–"] in rows
    assert "storage unavailable: no answer" in page
    assert "What to do: repair the storage" in page


def test_overview_and_partitions_page_show_the_same_lag_whether_the_workers_know_it_or_not(tmp_path: Path) -> None:
    """A worker that waits for the storage does not know it; the console looks at the log's end itself, if the source answers."""

    def shown(state: State, lag: int | None) -> tuple[list[str], list[str]]:
        held = PartitionStatus("T-0", 40, 40, 0, None, lag=lag)
        report = msgspec.structs.replace(a_report(partitions=(held,)), state=state)
        service = service_report([report], BEGINNING, is_running=True)
        client = client_of(make_sources(tmp_path, report=service, partitions=(Partition("T", 0),)))
        rows = re.findall(r"<tr>(<th scope=.row.>T-0.*?)</tr>", client.get("/").text + client.get("/partitions").text, re.DOTALL)
        overview, partitions = ([re.sub(r"<[^>]+>", "", cell) for cell in re.findall(r"<td.*?</td>", row)] for row in rows)
        assert f'<a href="/partitions">{overview[2]}</a>' in client.get("/").text
        return overview[1:3], partitions[1:4]

    assert shown(State.READY, 3) == (["40", "3"], ["40", "43", "3"])
    assert shown(State.STORAGE_UNAVAILABLE, None) == (["40", "60"], ["40", "100", "60"])
    assert shown(State.SOURCE_UNAVAILABLE, None)[0] == ["40", "unknown"]


def test_the_partitions_page_says_what_holds_a_position_back_since_when_and_what_to_do(tmp_path: Path) -> None:
    since = instant_text(BEGINNING - 300_000)
    pinned = PartitionStatus("T-0", 90, 80, 0, 80, held_since=since, held_by_unit=HOSTILE)
    free = PartitionStatus("T-1", 50, 50, 0, None)
    service = service_report([a_report(partitions=(pinned, free))], BEGINNING, is_running=True)
    client = client_of(make_sources(tmp_path, report=service, partitions=(Partition("T", 0), Partition("T", 1))))
    page = client.get("/partitions").text
    assert "offset 80 for 5 min" in page
    assert 'unit <a href="/unit?id=%3Cscript' in page
    assert "<script>alert" not in page
    assert page.count("is held back by offset 80 for 5 min") == 1
    assert "look at what this unit waits for" in page
    answers = client.get("/api/v1/partitions").json()["partitions"]
    assert [(each["undecided"], each["advice"] is None) for each in answers] == [(10, False), (0, True)]


def test_the_overview_says_that_its_workers_are_those_of_this_machine(tmp_path: Path) -> None:
    service = service_report([a_report()], BEGINNING, is_running=True)
    page = client_of(make_sources(tmp_path, report=service)).get("/").text
    assert "Workers of this machine" in page
    assert "Partitions of this machine's workers" in html.unescape(page)


def test_a_worker_is_restarted_by_a_form_and_a_missing_one_is_told_of(tmp_path: Path) -> None:
    workers = Workers()
    service = service_report([a_report()], BEGINNING, is_running=True)
    client = client_of(make_sources(tmp_path, report=service, workers=workers))
    answer = client.post("/workers/restart", data={"slot": "0", FORM: token_on(client, "/workers")})
    assert (answer.status_code, answer.headers["Location"]) == (303, "/workers")
    assert client.post("/workers/restart", data={"slot": "7", FORM: token_on(client, "/workers")}).status_code == 409
    assert client.post("/workers/restart", data={"slot": "-1", FORM: token_on(client, "/workers")}).status_code == 400
    threads = client.post("/workers/threads", data={"slot": "0", FORM: token_on(client, "/workers")})
    assert "Current thread 0x1" in threads.text
    assert workers.asked == [("restart", 0), ("restart", 7), ("dump", 0)]


LETTER_HEADERS = (
    ("schema-version", b"2"),
    ("dead-letter-reason", b"undecodable"),
    ("dead-letter-error", HOSTILE.encode()),
    ("dead-letter-source-position", b"T-0@17"),
    ("dead-letter-at", b"2026-03-28T23:20:00.000Z"),
)


@pytest.fixture
def letters(tmp_path: Path) -> TestClient:
    """A console with three dead letters in files, and the input that they came from."""
    return letters_in(tmp_path, *(b"not json %d" % number for number in (1, 2, 3)))


def letters_in(tmp_path: Path, *values: bytes, events: str = FIRST_FORMAT) -> TestClient:
    """A console with dead letters that have these values, of records in the format of this name."""
    out, into = tmp_path / "out", tmp_path / "in"
    out.mkdir()
    into.mkdir()
    (into / "partition-0.jsonl").write_bytes(b"")
    lines = [_letter(number, value) for number, value in enumerate(values, 1)]
    (out / "dead-letters.jsonl").write_bytes(b"".join(lines))

    def open_dead_letters(asked_for: AskedFor, sign: Sign) -> DeadLetterStore:
        del asked_for
        return FileDeadLetterStore(FileSettings("T", into, out, 1_000_000), sign)

    sources = make_sources(tmp_path, open_dead_letters=open_dead_letters)
    return client_of(sources._replace(codec=sources.codec._replace(events=events)))


def _letter(number: int, value: bytes) -> bytes:
    line = encode_line(Line(value, HOSTILE.encode(), LETTER_HEADERS))
    return b'{"number": "T-0#%d", %s' % (number, line[1:])


def numbers_on(page: str) -> list[str]:
    return [html.unescape(each) for each in re.findall(r'<a href="/dead-letter\?number=[^"]*" title="([^"]*)">', page)]


def test_each_page_names_the_version_and_the_time_at_which_it_was_made(tmp_path: Path) -> None:
    footer = client_of(make_sources(tmp_path)).get("/").text.partition("<footer>")[2]
    assert f"Resequencer {metadata.version('resequencer')}." in footer
    assert re.search(r'<span data-as-of="\d+">Shown as of <time', footer)


def test_dead_letters_have_pages_and_are_a_file_for_a_spreadsheet(tmp_path: Path) -> None:
    letters = letters_in(tmp_path, *(b"not json" for _ in range(203)))
    page = letters.get("/dead-letters?state=new").text
    assert "1–100 of 203 Next page" in text_of(page)
    assert '<a href="/dead-letters?state=new&amp;page=2" rel="next">' in page
    last = letters.get("/dead-letters?state=new&page=3").text
    assert numbers_on(last) == ["T-0#3", "T-0#2", "T-0#1"]
    assert "201–203 of 203 Previous page" in text_of(last)
    rows = list(csv.reader(StringIO(letters.get("/dead-letters.csv?state=new").text, newline="")))
    assert rows[0] == ["number", "state", "reason", "unit", "dead_since", "position", "error"]
    assert (len(rows), rows[1][:3]) == (204, ["T-0#1", "new", "undecodable"])
    assert letters.get("/dead-letters?status=new").status_code == 400
    assert letters.get("/dead-letters.csv?receiver=other").status_code == 404, "before the file begins"


def test_dead_letters_are_listed_the_newest_first_and_found_by_reason(letters: TestClient) -> None:
    page = letters.get("/dead-letters").text
    assert len(numbers_on(page)) == 3
    assert "<script>alert" not in page
    assert len(numbers_on(letters.get("/dead-letters?reason=undecodable&state=new").text)) == 3
    assert numbers_on(letters.get("/dead-letters?reason=too-large").text) == []


def test_one_dead_letter_is_discarded_with_a_reason_that_is_kept(letters: TestClient) -> None:
    number = numbers_on(letters.get("/dead-letters").text)[0]
    path = f"/dead-letter?number={number.replace('#', '%23')}"
    form = {"number": number, "action": "discard", "because": "a test <b>"}
    assert letters.post("/dead-letters/decide", data={**form, FORM: token_on(letters, path)}).status_code == 200
    page = letters.get(path).text
    assert "discarded" in page
    assert "a test &lt;b&gt;" in page
    assert "by local" in page
    refused = letters.post("/dead-letters/decide", data={**form, "because": " ", FORM: token_on(letters, path)})
    assert refused.status_code == 400


def test_all_that_a_filter_matches_are_requeued_if_the_count_is_still_the_same(letters: TestClient, tmp_path: Path) -> None:
    confirm = "/dead-letters/confirm?reason=undecodable&action=requeue"
    form = {"action": "requeue", "reason": "undecodable", "count": "2"}
    assert letters.post("/dead-letters/decide", data={**form, FORM: token_on(letters, confirm)}).status_code == 409
    done = letters.post("/dead-letters/decide", data={**form, "count": "3", FORM: token_on(letters, confirm)})
    assert done.status_code == 200
    assert (tmp_path / "in" / "partition-0.jsonl").read_bytes().count(b"\n") == 3


def test_an_edited_dead_letter_is_sent_again_with_the_new_value(letters: TestClient, tmp_path: Path) -> None:
    number = numbers_on(letters.get("/dead-letters").text)[0]
    path = f"/dead-letter?number={number.replace('#', '%23')}"
    form = {"number": number, "value": '{"still": "wrong"}', "because": "typing error"}
    wrong = letters.post("/dead-letter/edit", data={**form, FORM: token_on(letters, path)})
    assert wrong.status_code == 409
    assert "dead letter again" in wrong.text
    sent = letters.post("/dead-letter/edit", data={**form, "anyway": "yes", FORM: token_on(letters, path)})
    assert sent.status_code == 200, sent.text
    assert b'"wrong"' in (tmp_path / "in" / "partition-0.jsonl").read_bytes()


def test_a_refused_edit_keeps_what_was_typed_with_the_reason_beside_it(letters: TestClient) -> None:
    path = "/dead-letter?number=T-0%231"
    form = {"number": "T-0#1", "value": '\n{"still": "<wrong>"}', "because": "typing error", FORM: token_on(letters, path)}
    page = letters.post("/dead-letter/edit", data=form).text
    assert "Nothing was sent: it would be a dead letter again" in page
    assert '<textarea id="value"' in page
    assert ">\n\n{&#34;still&#34;: &#34;&lt;wrong&gt;&#34;}</textarea>" in page, "a browser leaves out the first end of line"
    assert 'value="typing error"' in page
    again = letters.post("/dead-letter/edit", data={**form, "because": " ", FORM: token_on(letters, path)})
    assert (again.status_code, "with your name" in again.text, "&lt;wrong&gt;" in again.text) == (
        400,
        True,
        True,
    )


def test_the_value_is_shown_formatted_with_its_headers_and_the_editor_holds_it(tmp_path: Path) -> None:
    letters = letters_in(tmp_path, b'{"a":"<b>"}', b"\xff\xfe")
    assert "&lt;b&gt;" not in letters.get("/dead-letter?number=T-0%231").text
    page = letters.get("/dead-letter?number=T-0%231&value=shown").text
    for there in ("(JSON)", "{\n  &#34;a&#34;: &#34;&lt;b&gt;&#34;\n}", "<dt>schema-version</dt>", "<dt>dead-letter-reason</dt>"):
        assert there in page, there
    assert ">\n{&#34;a&#34;:&#34;&lt;b&gt;&#34;}</textarea>" in page
    assert "<script>alert" not in page
    other = letters.get("/dead-letter?number=T-0%232&value=shown").text
    assert "00000000  ff fe" in other
    assert "The present one is no text that a form keeps as it is." in other
    assert next(tmp_path.glob("console-audit-*.jsonl")).read_text().count('"dead-letter.value"') == 2


def test_where_the_same_error_must_follow_requeue_is_not_the_first_choice(tmp_path: Path) -> None:
    page = letters_in(tmp_path, b"not json").get("/dead-letter?number=T-0%231").text
    assert "If it is requeued unchanged, it would be a dead letter again, undecodable" in page
    assert '<button class="second">Requeue unchanged</button>' in page


def test_those_that_are_marked_are_requeued_after_their_count_was_shown(letters: TestClient, tmp_path: Path) -> None:
    assert 'name="marked" value="T-0#3"' in letters.get("/dead-letters").text
    nothing = letters.get("/dead-letters/confirm?of-marked=yes&action=requeue")
    assert (nothing.status_code, "no dead letter is marked" in nothing.text) == (400, True)
    confirm = "/dead-letters/confirm?of-marked=yes&action=requeue&marked=T-0%231&marked=T-0%233"
    assert "Requeue 2 dead letters?" in letters.get(confirm).text
    form = {"action": "requeue", "number": ["T-0#1", "T-0#3"], FORM: token_on(letters, confirm)}
    assert letters.post("/dead-letters/decide", data=form).status_code == 200
    assert (tmp_path / "in" / "partition-0.jsonl").read_bytes().count(b"\n") == 2
    assert "again, also those that were decided before" in letters.get(confirm).text
    again = {**form, "again": "yes", FORM: token_on(letters, confirm)}
    assert letters.post("/dead-letters/decide", data=again).status_code == 200
    assert (tmp_path / "in" / "partition-0.jsonl").read_bytes().count(b"\n") == 4


def test_a_number_is_short_where_its_topic_is_known() -> None:
    assert [short_number(each) for each in ("IPF-DATA-3#64", "T-0#17", "odd")] == ["3#64", "0#17", "odd"]


@pytest.mark.parametrize(("value", "is_typed"), [(b"\x00\xffAvro", False), (b"two\r\nlines", False), ("Straße\n".encode(), True)])
def test_of_other_events_a_value_that_is_not_text_is_edited_in_a_file_alone(tmp_path: Path, value: bytes, is_typed: bool) -> None:
    letters = letters_in(tmp_path, value, events="mapped-1")
    page = letters.get("/dead-letter?number=T-0%231").text
    assert ("<textarea" in page) is is_typed
    assert ("takes the corrected value from a file" in page) is not is_typed
    assert ("if headers or key are wrong, append a corrected record" in page) is is_typed
    form = {"number": "T-0#1", "value": "any", "because": "typing error", "anyway": "yes"}
    answer = letters.post("/dead-letter/edit", data={**form, FORM: token_on(letters, "/dead-letter?number=T-0%231")})
    assert (answer.status_code, "its value is not text: give the corrected one in a file" in answer.text) == (
        (200, False) if is_typed else (409, True)
    )
    assert bool((tmp_path / "in" / "partition-0.jsonl").read_bytes()) is is_typed


def test_an_envelope_that_is_not_text_is_still_edited_in_the_form(tmp_path: Path) -> None:
    letters = letters_in(tmp_path, b"\xff", events=FIRST_FORMAT)
    assert "<textarea" in letters.get("/dead-letter?number=T-0%231").text


def test_the_value_is_saved_as_bytes_and_the_look_is_noted(letters: TestClient, tmp_path: Path) -> None:
    number = numbers_on(letters.get("/dead-letters").text)[0]
    answer = letters.get(f"/dead-letter/value?number={number.replace('#', '%23')}")
    assert answer.content == b"not json 3"
    assert answer.headers["Content-Disposition"].startswith("attachment")
    assert '"dead-letter.value"' in next(tmp_path.glob("console-audit-*.jsonl")).read_text()


def test_a_number_that_is_not_there_is_not_found(letters: TestClient) -> None:
    answer = letters.get("/dead-letter?number=T-0%2399")
    assert answer.status_code == 404
    assert "data-still" in answer.text, "a page that would be the same again does not load itself"
    assert letters.get("/dead-letter").status_code == 404


def test_a_filter_never_applies_to_the_second_half_of_an_or() -> None:
    """In Jinja `a or b | visible` shows `a` unfiltered."""
    templates = [each.read_text() for each in TEMPLATES.rglob("*.html")]
    assert templates
    assert not [found for text in templates for found in re.findall(r"\{\{[^}(]* or [^})]*\|[^}]*\}\}", text)]
