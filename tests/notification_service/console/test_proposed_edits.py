"""An edit of a dead letter that needs a second person: in the console and the API, over real files."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from harness.console_stage import FORM, URL, http_settings, make_sources, token_on
from harness.service_under_test import FakeClock
from starlette.testclient import TestClient

from notification_service.connectors.files.settings import FileSettings
from notification_service.connectors.line_format import Line, encode_line
from notification_service.console.access.identity import Role
from notification_service.console.application import make_application
from notification_service.console.context import Console
from notification_service.status.report import Identity as Worker
from notification_service.status.report import State, report
from notification_service.status.service_report import service_report
from notification_service.wiring.dead_letter_stores import FileDeadLetterStore
from tests.notification_service.console.test_orders import Logins

NUMBER = "T-0#1"
PAGE = "/dead-letter?number=T-0%231"
GOOD = '{"processingContext": {"unitOfWorkId": "uow-b"}, "flow": "F", "sequence": 2}'
OTHER = GOOD.replace("2}", "3}")
DAY = 86_400_000


class Stage:
    """A console of a service on files with one dead letter, where edits need two persons. The test names who asks."""

    def __init__(self, directory: Path, approval: tuple[str, ...] = ("edit",)) -> None:
        self.directory = directory
        (directory / "out").mkdir()
        (directory / "in").mkdir()
        self.input = directory / "in" / "partition-0.jsonl"
        self.input.write_bytes(b"")
        headers = {"schema-version": "2", "dead-letter-reason": "undecodable", "dead-letter-error": "x"}
        headers |= {"dead-letter-source-position": "T-0@17", "dead-letter-at": "2026-03-28T23:20:00.000Z"}
        line = encode_line(Line(b"not json", b"uow-b", tuple((name, text.encode()) for name, text in headers.items())))
        (directory / "out" / "dead-letters.jsonl").write_bytes(b'{"number": "%s", %s' % (NUMBER.encode(), line[1:]))
        files = FileSettings("T", directory / "in", directory / "out", 1_000_000)
        self.clock, self.logins = FakeClock(), Logins()
        now = self.clock.now()
        sources = make_sources(
            directory,
            clock=self.clock,
            open_dead_letters=lambda _, sign: FileDeadLetterStore(files, sign),
            report=service_report([report(Worker(1, "conf", now), State.READY, None, now)], now, is_running=True),
        )
        self.console = Console(http_settings(directory, approval=approval, auth="basic"), sources)
        self.client = TestClient(make_application(self.console, self.logins), base_url=URL, follow_redirects=False)

    def post(self, path: str, **fields: str) -> Any:
        return self.client.post(path, data={FORM: token_on(self.client, PAGE), "number": NUMBER, **fields})

    def propose(self, value: str = GOOD, **fields: str) -> Any:
        return self.post("/dead-letter/edit", value=value, because="a typing error", **fields)

    def approve(self, value: str = GOOD) -> Any:
        return self.post("/dead-letter/edit/approve", sha256=digest(value))

    def call(self, path: str, **body: Any) -> Any:
        headers = {"x-form-token": self.client.get("/api/v1/token").json()["token"]}
        return self.client.post(f"/api/v1/dead-letter{path}", json={"number": NUMBER, **body}, headers=headers)

    @property
    def page(self) -> str:
        answer = self.client.get(PAGE)
        assert answer.status_code == 200
        return answer.text

    @property
    def letter(self) -> dict[str, Any]:
        found: dict[str, Any] = self.client.get("/api/v1/dead-letter", params={"number": NUMBER}).json()
        return found

    @property
    def sent(self) -> list[str]:
        return [json.dumps(json.loads(line)["value"]) for line in self.input.read_bytes().splitlines()]

    @property
    def audited(self) -> list[dict[str, Any]]:
        files = sorted(self.directory.glob("console-audit-*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def digest(value: str) -> str:
    return sha256(value.encode()).hexdigest()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_an_edit_is_sent_once_when_a_second_person_approves_it(stage: Stage) -> None:
    assert "This becomes a proposal" in stage.page
    proposed = stage.propose()
    assert proposed.status_code == 200
    assert "edit-proposed" in proposed.text
    assert stage.sent == []
    assert stage.letter["state"] == "edit-proposed"
    assert "Approve and send" not in stage.page
    assert "Take back" in stage.page
    stage.logins.name = "ben"
    page = stage.page
    assert "anna proposed" in page
    assert "a typing error" in page
    assert digest(GOOD) in page
    assert stage.approve().status_code == 200
    assert stage.sent == [GOOD]
    assert stage.letter["state"] == "edited"
    assert "by ben, proposed by anna: a typing error" in stage.page
    assert stage.approve().status_code == 409
    assert stage.sent == [GOOD]


@pytest.mark.parametrize("name", ["anna", "Anna"])
def test_the_person_who_proposed_it_does_not_approve_it(stage: Stage, name: str) -> None:
    stage.propose()
    stage.logins.name = name
    refused = stage.approve()
    assert refused.status_code == 409
    assert "another person than the one who proposed it" in refused.text
    assert stage.sent == []


def test_only_the_value_that_was_seen_is_approved(stage: Stage) -> None:
    stage.propose(GOOD)
    stage.propose(OTHER)
    stage.logins.name = "ben"
    assert stage.approve(GOOD).status_code == 409
    assert stage.sent == []
    assert stage.approve(OTHER).status_code == 200
    assert stage.sent == [OTHER]


def test_a_rejected_proposal_is_over_and_the_letter_is_as_before(stage: Stage) -> None:
    for name, button in (("ben", "Reject"), ("anna", "Take back")):
        stage.logins.name = "anna"
        stage.propose()
        stage.logins.name = name
        assert button in stage.page
        assert stage.post("/dead-letter/edit/reject", because="no").status_code == 200
        assert stage.letter["state"] == "new"
        assert f"edit-rejected at {stage.letter['history'][-1]['at']} by {name}: no" in stage.page
        stage.logins.name = "ben"
        assert stage.approve().status_code == 409
    assert stage.post("/dead-letter/edit/reject", because="no").status_code == 409
    assert stage.sent == []


def test_a_proposal_expires_after_a_day(stage: Stage) -> None:
    stage.propose()
    stage.logins.name = "ben"
    stage.clock.advance(DAY)
    assert "Approve and send" in stage.page
    stage.clock.advance(1)
    assert "Approve and send" not in stage.page
    assert stage.letter["state"] == "new"
    stage.console.sampler.sample()
    assert stage.console.sampler.new_dead_letters == {"undecodable": 1}
    refused = stage.approve()
    assert refused.status_code == 409
    assert "the proposal has expired" in refused.text
    assert stage.sent == []


def test_a_proposal_of_a_clock_that_was_ahead_cannot_be_approved_once_the_clock_is_right(stage: Stage) -> None:
    stage.clock.advance(365 * DAY)
    stage.propose()
    stage.clock.advance(-365 * DAY)
    stage.logins.name = "ben"
    assert stage.letter["state"] == "new"
    assert stage.approve().status_code == 409


def test_what_is_done_with_the_letter_meanwhile_ends_the_proposal(stage: Stage) -> None:
    stage.propose()
    assert stage.post("/dead-letters/decide", action="discard", because="settled").status_code == 200
    assert stage.letter["state"] == "discarded"
    stage.logins.name = "ben"
    assert stage.approve().status_code == 409
    assert stage.sent == []


def test_a_rejected_proposal_does_not_make_a_requeue_be_forgotten(stage: Stage) -> None:
    stage.post("/dead-letters/decide", action="requeue")
    assert stage.propose().status_code == 409
    assert stage.propose(again="yes").status_code == 200
    stage.post("/dead-letter/edit/reject", because="no")
    refused = stage.post("/dead-letters/decide", action="requeue")
    assert (refused.status_code, "it was requeued" in refused.text) == (409, True)
    assert len(stage.input.read_bytes().splitlines()) == 1


def test_a_flaw_is_refused_before_it_is_proposed_and_told_if_it_was_let_pass(stage: Stage) -> None:
    refused = stage.propose('{"still": "wrong"}')
    assert (refused.status_code, "dead letter again" in refused.text) == (409, True)
    assert stage.letter["state"] == "new"
    stage.propose('{"still": "wrong"}', anyway="yes")
    stage.logins.name = "ben"
    assert "It may be a dead letter again" in stage.page
    assert stage.approve('{"still": "wrong"}').status_code == 200
    assert stage.sent == ['{"still": "wrong"}']


def test_the_proposed_value_is_payment_data(stage: Stage) -> None:
    stage.propose()
    assert GOOD not in stage.page
    path = "/dead-letter/proposed-value?number=T-0%231"
    assert stage.client.get(path).status_code == 403
    stage.logins.roles = frozenset({Role.VIEWER, Role.PAYMENTS})
    assert stage.client.get(path).content == GOOD.encode()
    assert stage.client.get(f"/api/v1{path}").content == GOOD.encode()
    assert [each["action"] for each in stage.audited[-2:]] == ["dead-letter.proposed-value"] * 2
    stage.logins.roles = frozenset({Role.VIEWER, Role.OPERATOR, Role.PAYMENTS})
    stage.post("/dead-letter/edit/reject", because="no")
    assert stage.client.get(path).status_code == 404


def test_the_lists_and_the_overview_tell_of_a_proposal(stage: Stage) -> None:
    stage.propose()
    page = stage.client.get("/dead-letters", params={"state": "edit-proposed"}).text
    assert NUMBER in page
    stage.console.sampler.sample()
    overview = stage.client.get("/").text
    assert '<a href="/dead-letters?state=edit-proposed">1 edited dead letter</a> waits for the approval' in overview
    assert stage.console.sampler.new_dead_letters == {}
    stage.post("/dead-letter/edit/reject", because="no")
    assert NUMBER not in stage.client.get("/dead-letters", params={"state": "edit-proposed"}).text
    assert NUMBER in stage.client.get("/dead-letters", params={"state": "new"}).text


def test_the_audit_log_has_the_proposal_and_who_approved_it(stage: Stage) -> None:
    stage.propose()
    stage.logins.name = "ben"
    stage.approve()
    proposed, approved = stage.audited
    assert (proposed["action"], proposed["stage"], proposed["by"]) == ("dead-letter.edit", "proposed", "anna")
    assert (approved["action"], approved["by"], approved["number"]) == ("dead-letter.edit.approve", "ben", NUMBER)
    assert proposed["sha256"] == approved["sha256"] == digest(GOOD)


def test_a_program_proposes_approves_and_rejects(stage: Stage) -> None:
    given = stage.call("/edit", value=GOOD, because="a typing error")
    assert (given.status_code, given.json()["outcomes"][0]["done"]) == (200, "edit-proposed")
    proposal = stage.letter["proposal"]
    assert (proposal["by"], proposal["sha256"], proposal["value_bytes"]) == ("anna", digest(GOOD), len(GOOD))
    assert stage.call("/edit/approve", sha256=digest(GOOD)).status_code == 409
    assert stage.call("/edit/reject", because="no").json()["outcomes"][0]["done"] == "edit-rejected"
    assert stage.letter["proposal"] is None
    stage.call("/edit", value=GOOD, because="a typing error")
    stage.logins.name = "robot"
    assert stage.call("/edit/approve", sha256="x").status_code == 400
    stage.logins.roles = frozenset({Role.VIEWER})
    assert stage.call("/edit/approve", sha256=digest(GOOD)).status_code == 403
    stage.logins.roles = frozenset({Role.OPERATOR})
    done = stage.call("/edit/approve", sha256=digest(GOOD))
    assert (done.status_code, done.json()["outcomes"][0]["done"]) == (200, "edited")
    assert stage.sent == [GOOD]


def test_without_approval_an_edit_is_sent_at_once(tmp_path: Path) -> None:
    stage = Stage(tmp_path, approval=())
    assert "This becomes a proposal" not in stage.page
    assert stage.propose().status_code == 200
    assert stage.sent == [GOOD]
