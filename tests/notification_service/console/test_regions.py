"""The page of the regions and their operations of the API: what they say, and who may reset."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness.console_stage import FORM, client_of, make_sources, token_on
from harness.service_under_test import BEGINNING
from msgspec.structs import replace
from starlette.testclient import TestClient

from notification_service.status.aggregation import BridgeState, BridgeStatus
from notification_service.status.report import ParticipantStatus, RegionStatus, State, StatusReport
from notification_service.status.service_report import ServiceReport, service_report
from notification_service.wiring.regions import RegionNotReset
from resequencer.clock import instant_text

PARTICIPANTS = (
    ParticipantStatus("source jms", "source", can_replay=False, is_transactional=None, remembers=False),
    ParticipantStatus("sink kafka", "sink", None, is_transactional=True, remembers=True, problem="<b>no right</b>"),
)
FAILED = RegionStatus("failed", 12, 5, 5, PARTICIPANTS, 7, 3, 4, 90, "sink kafka", "<b>no right</b>", "2026-03-28T23:33:00.000Z")


class Regions:
    """Notes what was ordered."""

    def __init__(self, error: RegionNotReset | None = None) -> None:
        self.asked: list[tuple[int, str, bool]] = []
        self.error = error

    def reset(self, slot: int, by: str, *, is_forced: bool) -> bool:
        if self.error is not None:
            raise self.error
        self.asked.append((slot, by, is_forced))
        return slot == 0


def reporting(region: RegionStatus | None) -> ServiceReport:
    now = instant_text(BEGINNING)
    report = StatusReport(State.READY, None, 4711, "conf", now, now, region=region)
    return service_report([report], BEGINNING, is_running=True)


def console(directory: Path, region: RegionStatus | None, regions: Regions | None) -> TestClient:
    return client_of(make_sources(directory, report=reporting(region))._replace(regions=regions))


def test_the_page_says_what_failed_and_what_each_participant_can_do(tmp_path: Path) -> None:
    page = console(tmp_path, FAILED, Regions()).get("/regions").text
    for answered in ("failed", "it takes nothing in until it is reset", "source jms", "sink kafka", "90 ms", "5 in a row"):
        assert answered in page
    assert "<b>no right</b>" not in page
    assert "although it has not failed" not in page


def test_a_region_that_runs_is_reset_only_with_a_tick(tmp_path: Path) -> None:
    page = console(tmp_path, replace(FAILED, state="running", attempts=0), Regions()).get("/regions").text
    assert "although it has not failed" in page


def test_the_button_gives_the_order_in_the_name_of_the_person(tmp_path: Path) -> None:
    regions = Regions()
    client = console(tmp_path, FAILED, regions)
    answer = client.post("/regions/reset", data={"slot": "0", FORM: token_on(client, "/regions")})
    assert (answer.status_code, answer.headers["Location"]) == (303, "/regions")
    forced = {"slot": "0", "force": "yes", FORM: token_on(client, "/regions")}
    assert client.post("/regions/reset", data=forced).status_code == 303
    assert client.post("/regions/reset", data={"slot": "7", FORM: token_on(client, "/regions")}).status_code == 409
    assert client.post("/regions/reset", data={"slot": "x", FORM: token_on(client, "/regions")}).status_code == 400
    assert [(slot, is_forced) for slot, _, is_forced in regions.asked] == [(0, False), (0, True), (7, False)]
    assert all(by for _, by, _ in regions.asked)
    (log,) = tmp_path.glob("console-audit-*.jsonl")
    assert "region.reset" in log.read_text()


def test_an_order_that_cannot_be_written_is_told_of(tmp_path: Path) -> None:
    client = console(tmp_path, FAILED, Regions(RegionNotReset("run: the order cannot be written")))
    answer = client.post("/regions/reset", data={"slot": "0", FORM: token_on(client, "/regions")})
    assert (answer.status_code, "the order cannot be written" in answer.text) == (503, True)


@pytest.mark.parametrize("region", [None, FAILED])
def test_without_control_there_is_no_button(tmp_path: Path, region: RegionStatus | None) -> None:
    page = console(tmp_path, region, None).get("/regions")
    assert (page.status_code, "Reset the region" in page.text) == (200, False)


def test_the_api_tells_the_regions_and_takes_the_order(tmp_path: Path) -> None:
    regions = Regions()
    client = console(tmp_path, FAILED, regions)
    (answered,) = client.get("/api/v1/regions").json()["regions"]
    assert (answered["slot"], answered["state"], answered["region"]["failed"]) == (0, "ready", "sink kafka")
    token = client.get("/api/v1/token").json()["token"]
    answer = client.post("/api/v1/regions/reset", json={"slot": 0, "force": True}, headers={"x-form-token": token})
    assert (answer.status_code, answer.json(), regions.asked[0][2]) == (200, {"slot": 0}, True)


def test_the_page_has_a_line_about_the_bridge(tmp_path: Path) -> None:
    def shown(bridge: BridgeState | None) -> str:
        sources = make_sources(tmp_path, report=reporting(FAILED))
        return client_of(sources._replace(find_bridge=lambda: BridgeStatus(bridge))).get("/regions").text

    assert "<strong>Bridge</strong>" not in shown(None)
    answered = shown(BridgeState(7, None, "mqtt://b", "topic T", 1_234, 3))
    assert "from mqtt://b to topic T: runs. 1\xa0234 messages appended, 3 not acknowledged yet." in answered
    answered = shown(BridgeState(7, "start: <b>away</b>", "mqtt://b", "topic T", notes=("a note",)))
    assert "start: &lt;b&gt;away&lt;/b&gt;" in answered
    assert "a note." in answered
