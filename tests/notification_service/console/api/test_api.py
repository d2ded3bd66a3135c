"""What the API answers, does and refuses: over a real storage and real files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from harness.api_stage import API, WAITING, ApiStage, number_of
from harness.driving import PARTITION
from harness.service_under_test import BEGINNING

from resequencer.clock import instant_text
from resequencer.storage_port import WaitKind, Waits


def test_the_service_is_told_as_status_tells_it_with_the_addresses_that_it_serves(stage: ApiStage) -> None:
    found = stage.get("/service")
    assert (found["state"], found["report"]["configuration"]) == ("ready", "x.conf")
    assert found["workers"][0]["report"]["worker_process_id"] == 2
    assert found["served"] == {"http": {"console": "http://127.0.0.1:8080"}}


def test_the_waiting_units_are_listed_a_page_at_a_time(stage: ApiStage) -> None:
    (unit,) = stage.get("/units")["units"]
    assert (unit["unit"], unit["partition"], unit["waits_for"]) == (WAITING, str(PARTITION), "sequence:1")
    assert stage.get("/units", waits_for="sequence:7")["units"] == []
    assert stage.get("/units", before=unit["since"])["units"] == []
    waits = Waits(BEGINNING + 30_000, WaitKind.DEADLINE, BEGINNING + 9_000, "sequence:3", "SEQUENCE", 1, 100)
    stage.units.put("uow-2", b"", waits)
    stage.console.waiting.refresh()
    first = stage.get("/units", limit="1")
    assert ([each["unit"] for each in first["units"]], first["matching"], first["total"]["units"]) == ([WAITING], 2, 2)
    second = stage.get("/units", limit="1", after=first["after"])
    assert ([each["unit"] for each in second["units"]], second["after"]) == (["uow-2"], None)
    assert first["as_of"] == instant_text(BEGINNING)


def test_the_story_of_a_unit_has_its_stash_and_no_payment_data(stage: ApiStage) -> None:
    story = stage.get("/unit", id=WAITING)
    assert story["partition"] == str(PARTITION)
    assert [each["sequence"] for each in story["state"]["stash"]] == [2]
    assert stage.get("/unit", id=WAITING, partition=f"{PARTITION.topic}-7")["partition"] is None
    unknown = stage.get("/unit", id="uow-99")
    assert unknown["partition"] is None
    assert unknown["meaning"]


def test_dead_letters_are_listed_and_one_is_shown_without_its_value(stage: ApiStage) -> None:
    found = stage.get("/dead-letters", state="new", limit="2")
    assert [each["number"] for each in found["dead_letters"]] == [number_of(3), number_of(2)]
    assert (found["matching"], found["new_by_reason"]) == (3, {"undecodable": 3})
    answer = stage.client.get(f"{API}/dead-letter", params={"number": number_of(1)})
    assert answer.json()["error"] == "<b>no JSON</b>"
    assert answer.json()["value_bytes"] == len(b"secret 1")
    assert "secret" not in answer.text


def test_the_value_is_answered_as_bytes_and_the_look_is_noted(stage: ApiStage) -> None:
    answer = stage.client.get(f"{API}/dead-letter/value", params={"number": number_of(1)})
    assert (answer.content, answer.headers["content-type"]) == (b"secret 1", "application/octet-stream")
    assert _noted(stage.directory) == [("dead-letter.value", number_of(1))]


def test_dead_letters_are_requeued_by_number_and_by_filter(stage: ApiStage) -> None:
    outcomes = stage.post("/dead-letters/requeue", {"numbers": [number_of(1)]})["outcomes"]
    assert [(each["number"], each["done"]) for each in outcomes] == [(number_of(1), "requeued")]
    matching = {"state": "new", "reason": "undecodable"}
    wrong = stage.post("/dead-letters/requeue", {"matching": {**matching, "count": 3}}, expected=409)
    assert wrong == {"error": "2 match now, and count is 3; look again"}
    assert len(stage.post("/dead-letters/requeue", {"matching": {**matching, "count": 2}})["outcomes"]) == 2
    assert stage.input.read_bytes().count(b"secret") == 3
    again = stage.post("/dead-letters/requeue", {"numbers": [number_of(1), "T-0#99"]}, expected=409)
    assert [each["done"] for each in again["outcomes"]] == [None, None]
    assert again["error"].startswith("2 of 2 not done; ")
    (done,) = stage.get("/dead-letter", number=number_of(1))["history"][-1:]
    assert (done["state"], done["by"]) == ("requeued", "local")


def test_a_dead_letter_is_discarded_with_a_reason(stage: ApiStage) -> None:
    stage.post("/dead-letters/discard", {"numbers": [number_of(1)], "because": "a test"})
    (done,) = stage.get("/dead-letter", number=number_of(1))["history"]
    assert (done["state"], done["because"]) == ("discarded", "a test")
    refused = stage.post("/dead-letters/discard", {"numbers": [number_of(2)], "because": " "}, expected=400)
    assert "because" in refused["error"]


def test_a_corrected_dead_letter_is_sent_again_and_its_history_has_no_value(stage: ApiStage) -> None:
    body = {"number": number_of(1), "value": '{"still": "wrong"}', "because": "a typing error"}
    assert "dead letter again" in stage.post("/dead-letter/edit", body, expected=409)["error"]
    stage.post("/dead-letter/edit", {**body, "anyway": True})
    assert b"wrong" in stage.input.read_bytes()
    answer = stage.client.get(f"{API}/dead-letter", params={"number": number_of(1)})
    assert [each["state"] for each in answer.json()["history"]] == ["editing", "edited"]
    assert "wrong" not in answer.text


def test_the_partitions_have_their_positions_and_ends(stage: ApiStage) -> None:
    (found,) = stage.get("/partitions")["partitions"]
    assert (found["partition"], found["held"]["read_to"], found["end"], found["lag"]) == (str(PARTITION), 9, 100, 91)


def test_a_worker_is_restarted_and_a_missing_one_is_told_of(stage: ApiStage) -> None:
    assert stage.post("/workers/restart", {"slot": 0}) == {"slot": 0}
    assert "does not run" in stage.post("/workers/restart", {"slot": 7}, expected=409)["error"]
    assert stage.post("/workers/threads", {"slot": 0})["threads"] == "Current thread 0x1"
    assert stage.workers.asked == [("restart", 0), ("restart", 7), ("dump", 0)]
    assert [each["report"]["slot"] for each in stage.get("/workers")["workers"]] == [0]


def test_a_login_that_a_browser_adds_changes_nothing_without_a_token(stage: ApiStage) -> None:
    answer = stage.client.post(f"{API}/workers/restart", json={"slot": 0})
    assert answer.status_code == 403
    assert "token" in answer.json()["error"]
    assert stage.workers.asked == []


@pytest.mark.parametrize(
    ("path", "status", "error"),
    [
        ("/units?limit=0", 400, "limit is '0'; expected int >= 1"),
        ("/units?limit=x", 400, "limit is 'x'; expected int, got str"),
        ("/units?limit=1&limit=2", 400, "the parameter limit is given twice"),
        ("/units?colour=red", 400, "the parameter 'colour' is unknown; known are: waits_for, kind, partition,"),
        ("/units?before=yesterday", 400, "before is 'yesterday'; expected: an instant such as"),
        ("/units?after=x", 400, "after is 'x'; "),
        ("/units?kind=null", 400, "kind is 'null'; leave it out"),
        ("/units?kind=x", 400, "kind is 'x'; invalid enum value 'x'"),
        ("/unit", 400, "object missing required field id"),
        ("/unit?id=a&partition=b", 400, "partition is 'b'; expected: a topic and a number, such as"),
        ("/dead-letters?reason=x", 400, "reason is 'x'; invalid enum value 'x'"),
        ("/dead-letter?number=T-0%2399", 404, "no dead letter has the number 'T-0#99'"),
        ("/workers?x=1", 400, "the parameter 'x' is unknown; known are: none"),
        ("/nowhere", 404, "Not Found"),
        ("/workers/restart", 405, "Method Not Allowed"),
    ],
)
def test_what_cannot_be_answered_is_refused_with_what_is_expected(stage: ApiStage, path: str, status: int, error: str) -> None:
    answer = stage.client.get(f"{API}{path}")
    assert answer.status_code == status, answer.text
    assert answer.json()["error"].startswith(error), answer.json()


@pytest.mark.parametrize(
    ("body", "kind", "status", "error"),
    [
        (b"{", "application/json", 400, "the body is no JSON: "),
        (b"\xff", "application/json", 400, "the body is no JSON: "),
        (b"[" * 100_000, "application/json", 400, "the body is no JSON: "),
        (b"[]", "application/json", 400, "expected object, got array"),
        (b'{"slot": "0"}', "application/json", 400, "slot is '0'; expected int, got str"),
        (b'{"slot": -1}', "application/json", 400, "slot is '-1'; expected int >= 0"),
        (b'{"slot": 0, "x": 1}', "application/json", 400, "object contains unknown field x"),
        (b'{"slot": 0}', "text/plain", 415, "the body is 'text/plain'; expected: application/json"),
        (b"slot=0", "application/x-www-form-urlencoded", 415, "the body is 'application/x-www-form-urlencoded'"),
    ],
)
def test_a_malformed_body_is_refused_with_what_is_expected(
    stage: ApiStage, body: bytes, kind: str, status: int, error: str
) -> None:
    headers = {"content-type": kind, "x-form-token": stage.get("/token")["token"]}
    answer = stage.client.post(f"{API}/workers/restart", content=body, headers=headers)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"].startswith(error), answer.json()
    assert stage.workers.asked == []


def test_what_the_access_layer_refuses_is_json_too(stage: ApiStage) -> None:
    foreign = stage.client.get(f"{API}/service", headers={"host": "evil.example"})
    assert foreign.status_code == 421
    assert "loopback" in foreign.json()["error"]


def test_a_method_that_is_not_allowed_names_those_that_are(stage: ApiStage) -> None:
    assert stage.client.delete(f"{API}/workers/restart").headers["allow"] == "POST"


def _noted(directory: Path) -> list[tuple[str, str]]:
    lines = [json.loads(each) for file in directory.glob("console-audit-*.jsonl") for each in file.read_text().splitlines()]
    return [(each["action"], each["number"]) for each in lines]
