"""The pages and operations of delivery: jobs, gates, errors, and what an operator changes, over a real ledger."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.console_stage import FORM, client_of, make_sources, text_of, token_on
from harness.ledger_stage import LedgerStage, item
from harness.receivers import receiver
from starlette.requests import HTTPConnection
from starlette.testclient import TestClient

from notification_service.console.access.identity import Identity, Role
from notification_service.delivery.core.answers import Answer, Done, Failed, Suspended
from notification_service.delivery.ledger.intake import Portion


class Viewer:
    """A person who may look, but sees no payment data and changes nothing."""

    challenge = None

    def find_claimed_name(self, connection: HTTPConnection) -> str | None:
        del connection
        return None

    async def find_identity(self, connection: HTTPConnection) -> Identity | None:
        del connection
        return Identity("vera", frozenset({Role.VIEWER}), sends_by_itself=False)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[LedgerStage]:
    made = LedgerStage(f"sqlite:///{tmp_path}/ledger.db", receiver("on-failed = hold"))
    yield made
    made.close()


@pytest.fixture
def client(stage: LedgerStage, tmp_path: Path) -> TestClient:
    return client_of(make_sources(tmp_path, open_ledger=stage.another))


def failed(stage: LedgerStage) -> None:
    """One unit has a failed row and is held; another one is delivered."""
    stage.take(item("u<1>", 1), item("u<1>", 2), item("u2", 1))
    claims = stage.claim()
    for each in claims:
        stage.finish([each], Failed(str(Answer(418, "what?"))) if each.key == "u<1>" else Done())


def change(client: TestClient, path: str, page: str, **form: str) -> int:
    return client.post(path, data={FORM: token_on(client, page), **form}).status_code


def test_without_a_receiver_the_page_says_so_and_the_api_finds_nothing(tmp_path: Path) -> None:
    client = client_of(make_sources(tmp_path))
    assert "No receiver is configured" in client.get("/delivery").text
    assert client.get("/api/v1/delivery").status_code == 404


def test_a_job_its_errors_and_what_is_held_are_shown(stage: LedgerStage, client: TestClient) -> None:
    failed(stage)
    overview = text_of(client.get("/delivery").text)
    assert "1 job" in overview
    assert "j r HELD 1 0 1 0 1" in overview
    job = text_of(client.get("/delivery/job?id=j").text)
    assert "HELD : 1 unit held" in job
    assert "2 of 3 notifications are done" in job
    assert "u<1> u<1>-1 failed deliver" in job
    assert "HTTP 418: what?" in job
    shown = text_of(client.get("/delivery/receiver?name=r").text)
    assert "Held units" in shown
    assert "u<1> , by its failed notification, row 1 of the ledger" in shown
    assert client.get("/delivery/job?id=nobody").status_code == 404
    assert client.get("/delivery/receiver?name=nobody").status_code == 404


def test_an_operator_releases_retries_and_cancels_and_the_audit_log_has_it(
    stage: LedgerStage, client: TestClient, tmp_path: Path
) -> None:
    failed(stage)
    assert change(client, "/delivery/retry-failed", "/delivery/job?id=j", job="j") == 303
    claims = stage.claim()
    assert [each.notification_id for each in claims] == ["u<1>-1"]
    stage.finish(claims, Failed("again"))
    assert change(client, "/delivery/release", "/delivery/receiver?name=r", receiver="r", unit="u<1>") == 303
    assert change(client, "/delivery/cancel", "/delivery/job?id=j", job="j") == 303
    assert stage.job().state == "CANCELLED"
    assert stage.job().cancelled == 1
    log = "".join(each.read_text() for each in tmp_path.glob("console-audit-*.jsonl"))
    for action in ("retry-failed", "release", "cancel"):
        assert f"delivery.{action}" in log


def test_what_is_missing_of_a_source_is_shown_and_its_loss_is_accepted_with_a_reason(
    stage: LedgerStage, client: TestClient, tmp_path: Path
) -> None:
    stage.ledger.start_job("j", "r", "s", "ann")
    intake = stage.ledger.open_intake("j", "w1")
    assert intake is not None
    stage.ledger.take_in(intake, "r", Portion([], {}, missing=7, lacks="7 bytes of n.jsonl"))
    page = "/delivery/job?id=j"
    assert "MISSING ✕ It lacks 7 bytes of n.jsonl. Put it back, or accept the loss." in text_of(client.get(page).text)
    assert change(client, "/delivery/accept-loss", page, job="j", because=" ") == 409
    assert change(client, "/delivery/accept-loss", page, job="j", because="sent <by hand>") == 303
    shown = text_of(client.get("/delivery/job?id=j").text)
    assert "It lacks" not in shown
    assert "7 bytes of n.jsonl; sent <by hand>" in shown
    assert "delivery.accept-loss" in "".join(each.read_text() for each in tmp_path.glob("console-audit-*.jsonl"))


def test_a_shut_gate_is_shown_with_its_next_probe_and_is_opened_by_hand(stage: LedgerStage, client: TestClient) -> None:
    stage.take(item("u", 1))
    stage.finish(stage.claim(), Suspended("503 currently suspended"))
    assert "shut since" in text_of(client.get("/delivery").text)
    page = text_of(client.get("/delivery/receiver?name=r").text)
    assert "503 currently suspended" in page
    assert "u j retry (suspension) deliver" in page
    assert change(client, "/delivery/open-gate", "/delivery/receiver?name=r", receiver="r") == 303
    assert "The gate is open" in text_of(client.get("/delivery/receiver?name=r").text)
    assert stage.deliver_all() == ["u-1"]


def test_a_receiver_is_paused_with_a_reason_and_resumed(stage: LedgerStage, client: TestClient, tmp_path: Path) -> None:
    stage.take(item("u", 1))
    page = "/delivery/receiver?name=r"
    assert change(client, "/delivery/pause", page, receiver="r", because=" ") == 400
    assert change(client, "/delivery/pause", page, receiver="r", because="it is <repaired>") == 200
    assert stage.claim() == []
    shown = text_of(client.get(page).text)
    assert "Paused by local since" in shown
    assert "the receiver is called" not in shown
    assert "it is <repaired>. No call begins" in shown
    assert "paused by local since" in text_of(client.get("/delivery").text)
    assert client.get("/api/v1/delivery").json()["gates"][0]["pause"]["because"] == "it is <repaired>"
    assert change(client, "/delivery/pause", page, receiver="r", because="again") == 409
    assert change(client, "/delivery/resume", page, receiver="r", because="done") == 200
    assert stage.deliver_all() == ["u-1"]
    log = "".join(each.read_text() for each in tmp_path.glob("console-audit-*.jsonl"))
    assert '"action":"delivery.pause","receiver":"r","because":"it is <repaired>"' in log
    assert "delivery.resume" in log
    assert change(client, "/delivery/pause", page, receiver="unknown", because="x") == 404


def test_a_row_and_a_shut_gate_are_tried_now(stage: LedgerStage, client: TestClient) -> None:
    page = "/delivery/receiver?name=r"
    assert change(client, "/delivery/retry-now", page, receiver="r") == 409
    stage.take(item("u", 1), item("v", 1))
    rows = stage.claim()
    stage.finish(rows, Suspended("HTTP 503"))
    assert f"Try row {rows[1].row} now" in client.get(page).text
    assert change(client, "/delivery/retry-now", page, receiver="r", row=str(rows[1].row)) == 200
    (probe,) = stage.claim()
    assert probe.row == rows[1].row
    stage.finish([probe], Suspended("HTTP 503"))
    assert change(client, "/delivery/retry-now", page, receiver="r", because="it is awake") == 200
    assert len(stage.claim()) == 1


def test_failed_rows_are_counted_chosen_by_their_error_and_delivered_again(
    stage: LedgerStage, client: TestClient, tmp_path: Path
) -> None:
    stage.take(item("u", 1), item("v", 1), item("w", 1))
    for each in stage.claim():
        stage.finish([each], Done() if each.key == "v" else Failed(f"HTTP 418: {each.key}?"))
    page = "/delivery/job?id=j&error=418%3A+U"
    shown = text_of(client.get(page).text)
    assert "1 failed notification of these can be delivered again" in shown
    assert "w-1" not in shown
    assert client.get("/api/v1/delivery/job?job=j&error=418&since=2000-01-01T00:00:00Z").json()["can_be_retried"] == 0
    assert client.get("/api/v1/delivery/job?job=j&error=418").json()["can_be_retried"] == 2
    assert change(client, "/delivery/retry-failed", page, job="j", error="418: U") == 303
    assert stage.deliver_all() == ["u-1"]
    log = "".join(each.read_text() for each in tmp_path.glob("console-audit-*.jsonl"))
    assert '"action":"delivery.retry-failed","job":"j","late":"false","error":"418: U"' in log
    viewer = client_of(make_sources(tmp_path, open_ledger=stage.another), Viewer())
    assert viewer.get(page).status_code == 403, "a search would show what the answers are"


def test_who_may_only_look_finds_no_forms_and_changes_nothing(stage: LedgerStage, tmp_path: Path) -> None:
    failed(stage)
    client = client_of(make_sources(tmp_path, open_ledger=stage.another), Viewer())
    for path in ("/delivery/job?id=j", "/delivery/receiver?name=r"):
        page = client.get(path)
        assert page.status_code == 200
        assert 'method="post"' not in page.text
        assert "what?" not in page.text, "it may quote the payment"
    assert "HTTP 418 (its text may quote the payment" in client.get("/delivery/job?id=j").text
    assert client.get("/api/v1/delivery/job?job=j").json()["errors"][0]["error"].startswith("HTTP 418 (its text")
    assert client.post("/delivery/cancel", data={"job": "j"}).status_code == 403
    assert stage.job().cancelled == 0
