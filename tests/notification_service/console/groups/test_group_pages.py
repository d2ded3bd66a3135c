"""The pages and operations of groups, over a real store in files."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from html import unescape
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from harness.console_stage import FORM, client_of, http_settings, make_sources, text_of, token_on
from harness.counted_groups import HOUR_MS, PARTY, GroupStage
from starlette.requests import HTTPConnection
from starlette.testclient import TestClient

from notification_service.aggregation.core import Slot, Stored
from notification_service.aggregation.files import ValuesFile
from notification_service.console import group_pages
from notification_service.console.access.identity import Identity, NoLogin, Role
from notification_service.console.application import make_application
from notification_service.console.context import Console
from notification_service.status.aggregation import AggregationStatus, StoreStatus
from resequencer.notification import group_report_id

API = "/api/v1/groups"
OPEN, DONE, ODD = "OPENGROUP", "DONEGROUP", "ODDGROUP"


class Person:
    """A login with these roles that no browser adds by itself."""

    challenge = None

    def __init__(self, *roles: Role) -> None:
        self._identity = Identity("vera", frozenset(roles), sends_by_itself=False)

    def find_claimed_name(self, connection: HTTPConnection) -> None:
        del connection

    async def find_identity(self, connection: HTTPConnection) -> Identity:
        del connection
        return self._identity


class Stage:
    """A console over the groups; without a thread, so that `look` refreshes."""

    def __init__(self, groups: GroupStage, directory: Path) -> None:
        self.groups = groups
        sources = make_sources(directory, clock=groups.clock)._replace(groups=groups, find_aggregation=groups.find_status)
        self.console = Console(http_settings(directory), sources)
        self.directory = directory
        self.client = self.client_for()

    def client_for(self, *roles: Role) -> TestClient:
        login: Any = Person(*roles) if roles else NoLogin()
        return TestClient(make_application(self.console, login), base_url="http://127.0.0.1:8080", follow_redirects=False)

    def look(self) -> None:
        assert self.console.groups is not None
        self.groups.count()
        self.console.groups.watch.refresh()

    def let_days_pass(self, count: int) -> None:
        """Let time pass as for a service that runs, which looks at its clock meanwhile."""
        for _ in range(count):
            self.groups.clock.advance(24 * HOUR_MS)
            self.groups.count()
        self.look()

    def get(self, path: str = "", **query: str) -> Any:
        return self.client.get(f"{API}{path}", params=query).json()

    def text(self, path: str) -> str:
        page = self.client.get(path)
        return f"{page.status_code} {text_of(page.text.partition('<main')[2])}"


@pytest.fixture
def stage(groups: GroupStage, tmp_path: Path) -> Iterator[Stage]:
    made = Stage(groups, tmp_path)
    yield made
    made.console.close()


def fill(groups: GroupStage) -> None:
    """One group waits, one is through, and one says no total."""
    groups.status(DONE, "d1")
    groups.status(DONE, "d2", "RJCT", amount="100")
    groups.count()
    groups.clock.advance(HOUR_MS)
    groups.status(OPEN, "o<1>", "ACSP", instruction="P-1")
    groups.status(OPEN, "o2", "RJCT", instruction="P-2")
    groups.status(OPEN, "o3", "ACCC", total=4, amount=None, instruction="P-2")
    groups.status(ODD, "x1", total=None)


def test_where_groups_are_not_counted_the_page_says_so_and_the_api_finds_nothing(tmp_path: Path) -> None:
    client = client_of(make_sources(tmp_path))
    assert "The payments of messages are not counted" in client.get("/groups").text
    for path in ("", "/KEY", "/KEY/members", "/events"):
        assert client.get(f"{API}{path}").status_code == 404


def test_what_is_not_through_comes_first_with_its_counts_as_text(stage: Stage) -> None:
    fill(stage.groups)
    stage.look()
    assert [each["key"] for each in stage.get()["groups"]] == [ODD, OPEN, DONE]
    shown = stage.text("/groups")
    assert "3 groups" in shown
    assert "M-OPENGROUP Bäckerei <b>Muster</b> open 2 final, 3 seen of 2" in shown
    assert "M-DONEGROUP Bäckerei <b>Muster</b> complete 2 final, 2 seen of 2 ACCC: 1 RJCT: 1 ACCC 1 RJCT 1" in shown
    assert "no-total: no payment says how many the message has (NbOfTxs)" in shown
    assert "<b>Muster" not in stage.client.get("/groups").text


def test_groups_are_filtered_by_state_by_problems_and_by_a_part_of_their_ids(stage: Stage) -> None:
    fill(stage.groups)
    stage.look()

    def keys(**query: str) -> list[str]:
        return [each["key"] for each in stage.get(**query)["groups"]]

    assert keys(state="complete") == [DONE]
    assert keys(problems="true") == [ODD, OPEN]
    assert keys(text="m-odd") == [ODD]
    assert keys(text="%") == []
    assert keys(text="muster") == [ODD, OPEN, DONE]
    assert "1 group" in stage.text("/groups?state=complete")
    assert "None matches" in stage.text("/groups?text=nobody")
    # A note keeps no group from being complete.
    stage.groups.status("NOSUM", "n1", "ACSP", amount=None, total=1)
    stage.look()
    assert keys(problems="true") == [ODD, OPEN]


def test_groups_are_listed_by_when_they_began_if_that_is_asked_for(stage: Stage) -> None:
    fill(stage.groups)
    stage.groups.clock.advance(1)
    stage.groups.status("NEWEST", "n1", "ACSP")
    stage.look()
    assert [each["key"] for each in stage.get(order="newest")["groups"]] == ["NEWEST", ODD, OPEN, DONE]
    shown = stage.text("/groups?order=newest&state=open")
    assert shown.index("M-NEWEST") < shown.index("M-OPENGROUP")


def test_a_group_is_found_by_the_id_of_its_message(stage: Stage) -> None:
    fill(stage.groups)
    stage.look()
    assert stage.get(f"/M-{OPEN}")["group"]["key"] == OPEN
    assert stage.get(f"/M-{OPEN}/members") == stage.get(f"/{OPEN}/members")
    assert stage.text(f"/groups/M-{OPEN}") == stage.text(f"/groups/{OPEN}")


def test_the_list_has_pages_says_how_many_there_are_and_is_a_file(stage: Stage) -> None:
    for number in range(205):
        stage.groups.status(f"G{number:03}", f"u{number}", "ACSP")
    stage.look()
    assert "1–100 of 205 Next page" in stage.text("/groups")
    last = stage.text("/groups?page=3")
    assert "201–205 of 205 Previous page" in last
    assert "M-G204" in last
    assert "M-G000" not in last
    answer = stage.client.get("/groups.csv")
    rows = list(csv.reader(StringIO(answer.text, newline="")))
    assert rows[0][:4] == ["key", "message_id", "initiating_party", "state"]
    assert [each[0] for each in rows[1:]] == [f"G{number:03}" for number in range(205)]
    masked = stage.client_for(Role.VIEWER).get("/groups.csv").text.splitlines()
    assert next(csv.reader(masked[1:2]))[2] == "needs the role payments"


def test_the_file_goes_on_behind_a_group_that_has_gone_meanwhile(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("G1", "G2", "G3", "G4"):
        stage.groups.status(name, f"u-{name}", "ACSP")
    stage.look()
    file = ValuesFile(stage.groups.directory / "values.db", is_copy=True)
    with file.writing() as writing:
        writing.put({Slot("G1"): None})
    file.close()
    monkeypatch.setattr(group_pages, "_AT_ONCE", 2)
    rows = list(csv.reader(StringIO(stage.client.get("/groups.csv").text, newline="")))
    assert [each[0] for each in rows[1:]] == ["G2", "G3", "G4"]


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("page=0", "page is '0'; expected: a number from 1 to 100"),
        ("state=abc", "state is 'abc'; expected: open"),
        ("since=1", "the parameter 'since' is unknown"),
    ],
)
def test_a_filter_that_would_not_be_applied_is_refused(stage: Stage, query: str, problem: str) -> None:
    assert problem in stage.text(f"/groups?{query}")


def test_an_answer_of_the_api_is_bounded(stage: Stage) -> None:
    for number in range(205):
        stage.groups.status(f"G{number:03}", f"u{number}", "ACSP")
    stage.look()
    answer = stage.get(limit="3")
    assert len(answer["groups"]) == 3
    assert answer["matching"] == 205
    assert answer["totals"] == {"by_state": {"open": 205}, "with_problems": 0, "oldest_at": stage.groups.clock.now()}


def test_a_group_is_shown_with_sums_payment_informations_members_and_remedies(stage: Stage) -> None:
    fill(stage.groups)
    stage.look()
    shown = stage.text(f"/groups/{OPEN}")
    assert "open : 2 of 2 payments are final, 1 missing" in shown
    assert "contradictory-total: NbOfTxs is 2 for some payments and 4 for others; ask the sender which is right" in shown
    assert "Status Payments Sum ACCC 1 not all are known ACSP 1 12.50 RJCT 1 12.50" in shown
    assert "2 payment informations" in shown
    assert "P-2 ACCC 1 RJCT 1" in shown
    assert "o<1> ACSP 12.50 EUR P-1" in shown
    assert '<a href="/unit?id=o%3C1%3E">' in stage.client.get(f"/groups/{OPEN}").text
    done = stage.text(f"/groups/{DONE}")
    assert f"1 report sent Report 1: {group_report_id(DONE, 1)}" in done
    assert stage.text("/groups/NOBODY").startswith("404")
    assert stage.client.get(f"{API}/NOBODY/members").status_code == 404


def test_members_are_paged(stage: Stage) -> None:
    for number in range(250):
        stage.groups.status(OPEN, f"u{number:03}", "ACSP", total=500)
    stage.look()
    seen: list[str] = []
    path: str | None = f"/groups/{OPEN}"
    while path:
        page = stage.client.get(path).text
        seen += re.findall(r'href="/unit\?id=(u\d+)"', page)
        found = re.search(r'<a href="([^"]*)" rel="next">', page)
        path = unescape(found[1]) if found else None
    assert seen == [f"u{number:03}" for number in range(250)]
    answer = stage.get(f"/{OPEN}/members", limit="3", after="u100")
    assert [each["unit"] for each in answer["members"]] == ["u101", "u102", "u103"]
    assert answer["after"] == "u103"


def test_without_the_role_payments_neither_parties_nor_sums_are_told_nor_found(stage: Stage) -> None:
    fill(stage.groups)
    stage.groups.status("SUMS", "s1", control_sum="99.00", total=1, instruction="P; Q", instruction_sum="99.00")
    stage.look()
    client = stage.client_for(Role.VIEWER)
    paths = ("/groups", f"/groups/{OPEN}", "/groups/SUMS", API, f"{API}/{OPEN}", f"{API}/SUMS", f"{API}/{OPEN}/members")
    for path in paths:
        page = client.get(path).text
        for secret in ("Muster", "12.5", "99.00", ">99<"):
            assert secret not in unescape(page), (path, secret)
    shown = unescape(client.get("/groups").text)
    assert "control-sum: what differs needs the role payments; ask the sender" in shown
    assert "payment-information: what differs needs the role payments; reports have no PmtInfSts there" in shown
    assert client.get(API, params={"text": "muster"}).json()["groups"] == []
    assert "Muster" in stage.text("/groups")
    assert "99" in stage.text("/groups/SUMS")


def test_an_operator_closes_a_group_and_the_audit_log_has_it(stage: Stage) -> None:
    fill(stage.groups)
    stage.look()
    page = f"/groups/{ODD}/closing"
    assert "This cannot be undone" in stage.text(page)
    form = {FORM: token_on(stage.client, page), "because": "the sender <told> us"}
    done = stage.client.post(f"/groups/{ODD}/close", data=form)
    assert (done.status_code, done.headers["location"]) == (303, f"/groups/{ODD}")
    assert "local gave the command to close it." in stage.text(f"/groups/{ODD}")
    log = "".join(each.read_text() for each in stage.directory.glob("console-audit-*.jsonl"))
    assert '"action":"groups.close","group":"ODDGROUP","because":"the sender <told> us"' in log
    stage.look()
    assert "closed : 1 of ? payments are final; closed by local: the sender <told> us" in stage.text(f"/groups/{ODD}")
    assert "gave the command to close it" not in stage.text(f"/groups/{ODD}")
    assert stage.text(page).startswith("409")
    assert stage.client.post(f"/groups/{ODD}/close", data=form).status_code == 403, "a token is good once"


def test_a_close_needs_the_role_a_token_a_reason_and_a_group_that_is_not_through(stage: Stage) -> None:
    fill(stage.groups)
    stage.look()
    viewer = stage.client_for(Role.VIEWER, Role.PAYMENTS)
    assert "Close the group" not in viewer.get(f"/groups/{ODD}").text
    assert viewer.get(f"/groups/{ODD}/closing").status_code == 403
    assert viewer.post(f"/groups/{ODD}/close", data={"because": "x"}).status_code == 403
    assert viewer.post(f"{API}/{ODD}/close", json={"because": "x"}).status_code == 403
    assert stage.client.post(f"/groups/{ODD}/close", data={"because": "x"}).status_code == 403, "no token"
    token = token_on(stage.client, f"/groups/{ODD}/closing")
    foreign = {"origin": "http://evil.example"}
    assert stage.client.post(f"/groups/{ODD}/close", data={FORM: token, "because": "x"}, headers=foreign).status_code == 403
    operator = stage.client_for(Role.OPERATOR)
    assert operator.post(f"/groups/{ODD}/close", data={"because": "  "}).status_code == 400
    assert operator.post(f"{API}/{ODD}/close", json={"because": ""}).status_code == 400
    assert operator.post(f"{API}/{DONE}/close", json={"because": "x"}).status_code == 409
    assert operator.post(f"{API}/NOBODY/close", json={"because": "x"}).status_code == 404
    assert list(stage.directory.glob("console-audit-*.jsonl")) == []
    assert operator.post(f"{API}/{ODD}/close", json={"because": "x"}).json() == {"is_given": True}
    stage.look()
    assert stage.get(f"/{ODD}")["group"]["closed_by"] == "vera"


def test_a_store_that_does_not_answer_is_told_with_since_when_and_what_was_read_stays(stage: Stage) -> None:
    assert stage.console.groups is not None
    assert "The console has not read the groups since it started." in stage.text("/groups")
    stage.groups.is_away = True
    stage.console.groups.watch.refresh()
    assert (
        "The groups cannot be read since 2026-03-28 23:20:00 (0 s): the brokers do not answer. Nothing was read yet"
        in stage.text("/groups")
    )
    assert stage.text("/groups/KEY").startswith("503")
    stage.groups.is_away = False
    fill(stage.groups)
    stage.look()
    assert "cannot be read" not in stage.text("/groups")
    stage.console.groups.watch._close_view()
    stage.groups.is_away = True
    stage.groups.clock.advance(60_000)
    stage.console.groups.watch.refresh()
    stage.groups.clock.advance(60_000)
    stage.console.groups.watch.refresh()
    shown = stage.text("/groups")
    assert "(1 min 0 s): the brokers do not answer. What is shown is 2 min 0 s old" in shown
    assert "M-OPENGROUP" in shown
    assert stage.text(f"/groups/{OPEN}").startswith("200")
    answer = stage.get()
    assert answer["problem"] == "the brokers do not answer"
    assert answer["problem_since"] > answer["as_of"]


def test_a_group_that_ends_while_one_looks_shows_what_is_kept_of_it(stage: Stage) -> None:
    fill(stage.groups)
    stage.look()
    assert "d1" in stage.text(f"/groups/{DONE}")
    stage.let_days_pass(8)
    shown = stage.text(f"/groups/{DONE}")
    assert "ended : 2 of 2 payments are final" in shown
    assert "The group has ended: its payments are forgotten" in shown
    assert stage.get(state="ended")["groups"][0]["key"] == DONE
    stage.let_days_pass(91)
    assert stage.text(f"/groups/{DONE}").startswith("404")
    assert DONE not in [each["key"] for each in stage.get()["groups"]]


def test_a_value_that_this_version_cannot_read_is_no_failure(stage: Stage) -> None:

    fill(stage.groups)
    stage.groups.count()
    file = ValuesFile(stage.groups.directory / "values.db", is_copy=True)
    with file.writing() as writing:
        writing.put({Slot("LATER"): Stored(json.dumps({"version": 99}).encode(), None)})
    file.close()
    stage.look()
    assert "3 groups" in stage.text("/groups")
    assert stage.text("/groups/LATER").startswith("404")


def test_a_party_of_another_kind_is_escaped(stage: Stage) -> None:
    fill(stage.groups)
    stage.look()
    assert PARTY in unescape(stage.client.get("/groups").text)
    assert PARTY not in stage.client.get("/groups").text


def test_a_search_that_takes_too_long_is_given_up_and_says_so(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(300):
        stage.groups.status(f"G{number:03}", f"u{number}", "ACSP")
    stage.look()
    monkeypatch.setattr("notification_service.console.groups._SEARCH_SECONDS", -1.0)
    monkeypatch.setattr("notification_service.console.groups._STEPS", 1)
    assert "the search took too long and was given up, so there may be others" in stage.text("/groups?text=nowhere")


@pytest.mark.parametrize(
    ("store", "why"),
    [
        (StoreStatus("payments", problem="the <brokers> do not answer"), "the <brokers> do not answer"),
        (StoreStatus("payments", untaken=1, notes=("F-0 is not taken over yet: it is damaged",)), "F-0 is not taken over yet"),
    ],
)
def test_what_is_not_counted_at_the_moment_is_told_with_the_reason(stage: Stage, store: StoreStatus, why: str) -> None:
    assert "Not everything is counted" not in stage.text("/groups")
    stage.groups.reported = AggregationStatus((), (store,))
    assert f"Not everything is counted now, store payments: {why}" in stage.text("/groups")


def test_groups_that_are_old_say_so_first_of_all(stage: Stage) -> None:
    fill(stage.groups)
    stage.look()
    assert "Groups As of" in stage.text("/groups")
    stage.groups.clock.advance(11 * 60_000)
    for path in ("/groups", f"/groups/{OPEN}"):
        shown = stage.text(path)
        assert "The groups below are 11 min 0 s old : as of " in shown.partition("All groups")[0].partition("First status")[0], (
            path
        )
