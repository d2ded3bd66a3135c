"""The page of the regions and their operations of the API: what they say, and who may reset."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from harness.console_stage import FORM, client_of, make_sources, token_on, without_times
from harness.service_under_test import BEGINNING
from msgspec.structs import replace
from starlette.testclient import TestClient

from notification_service.status.aggregation import BridgeState, BridgeStatus
from notification_service.status.report import ParticipantStatus, RegionStatus, State, StatusReport
from notification_service.status.service_report import ServiceReport, service_report
from notification_service.status.sink_attributes import RegionOrder, ShownAttribute
from notification_service.wiring.regions import RegionNotReset
from resequencer.clock import instant_text
from resequencer.errors import ConfigurationError

PARTICIPANTS = (
    ParticipantStatus("source jms", "source", can_replay=False, is_transactional=None, remembers=False),
    ParticipantStatus("sink kafka", "sink", None, is_transactional=True, remembers=True, problem="<b>no right</b>"),
)
FAILED = RegionStatus("failed", 12, 5, 5, PARTICIPANTS, 7, 3, 4, 90, "sink kafka", "<b>no right</b>", "2026-03-28T23:33:00.000Z")


class Regions:
    """Notes what was ordered. A worker answers each plan at once."""

    def __init__(self, error: RegionNotReset | None = None, *, refusal: str | None = None, needs_approval: bool = False) -> None:
        self.asked: list[tuple[int, str, bool]] = []
        self.ordered: list[RegionOrder] = []
        self.error = error
        self.refusal = refusal
        self.needs_approval = needs_approval
        self.proposal: RegionOrder | None = None
        self.decided: list[tuple[str, str, bool]] = []

    def reset(self, slot: int, by: str, *, is_forced: bool) -> str | None:
        if self.error is not None:
            raise self.error
        self.asked.append((slot, by, is_forced))
        return "7" if slot == 0 else None

    def plan_initial(self, slot: int, by: str) -> str | None:
        del by
        return "plan" if slot == 0 else None

    def reset_to_initial(self, slot: int, by: str, because: str) -> RegionOrder | None:
        if self.error is not None:
            raise self.error
        self.ordered.append(RegionOrder(7, "8", by, to_initial=True, because=because, at=instant_text(BEGINNING)))
        return self.ordered[-1] if slot == 0 else None

    def find_proposal(self, slot: int) -> RegionOrder | None:
        return self.proposal if slot == 0 else None

    def decide(self, slot: int, proposal_id: str, by: str, *, is_approved: bool) -> None:
        del slot
        if self.error is not None:
            raise self.error
        self.decided.append((proposal_id, by, is_approved))

    def find_answer(self, slot: int, order_id: str) -> RegionStatus | None:
        return replace(FAILED, answered=order_id, answer="it would read EVENTS-0 <b>again</b>", has_obeyed=slot == 0)


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
    assert "from mqtt://b to topic T: runs. 1,234 messages appended, 3 not acknowledged yet." in answered
    answered = shown(BridgeState(7, "start: <b>away</b>", "mqtt://b", "topic T", notes=("a note",)))
    assert "start: &lt;b&gt;away&lt;/b&gt;" in answered
    assert "a note." in answered


def test_a_reset_to_the_initial_state_says_first_what_it_would_do_and_needs_a_reason(tmp_path: Path) -> None:
    regions = Regions()
    client = console(tmp_path, FAILED, regions)
    assert "/regions/initial?slot=0" in client.get("/regions").text
    page = client.get("/regions/initial?slot=0")
    assert "it would read EVENTS-0 &lt;b&gt;again&lt;/b&gt;" in page.text
    token = token_on(client, "/regions/initial?slot=0")
    assert client.post("/regions/initial/give", data={"slot": "0", "because": " ", FORM: token}).status_code == 400
    given = {"slot": "0", "because": "a new handler", FORM: token_on(client, "/regions/initial?slot=0")}
    answer = client.post("/regions/initial/give", data=given)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/regions")
    assert [each.because for each in regions.ordered] == ["a new handler"]
    assert client.get("/regions/initial?slot=7").status_code == 409
    (log,) = tmp_path.glob("console-audit-*.jsonl")
    assert '"action":"region.reset-to-initial","slot":0,"because":"a new handler"' in log.read_text()


def test_where_it_is_refused_the_page_says_why_and_has_no_button(tmp_path: Path) -> None:
    page = console(tmp_path, FAILED, Regions(refusal="storage-type is none")).get("/regions/initial?slot=0").text
    assert "storage-type is none" in page
    assert "<button>Reset to the initial state" not in page


def test_another_person_approves_a_proposal_and_who_made_it_takes_it_back(tmp_path: Path) -> None:
    regions = Regions(needs_approval=True)
    client = console(tmp_path, FAILED, regions)
    assert "another person has to approve it" in client.get("/regions/initial?slot=0").text
    regions.proposal = RegionOrder(7, "8", "ben", to_initial=True, because="a <b>new</b> handler", at=instant_text(BEGINNING))
    page = client.get("/regions").text
    assert "proposed by ben" in page
    assert "a &lt;b&gt;new&lt;/b&gt; handler" in page
    for path in ("approve", "reject"):
        given = {"slot": "0", "id": "8", FORM: token_on(client, "/regions")}
        assert client.post(f"/regions/initial/{path}", data=given).status_code == 303
    assert [(each[0], each[2]) for each in regions.decided] == [("8", True), ("8", False)]
    (log,) = tmp_path.glob("console-audit-*.jsonl")
    noted = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(each["action"], each["proposed_by"]) for each in noted] == [("region.approve", "ben"), ("region.reject", "ben")]
    regions.proposal = replace(regions.proposal, by=regions.decided[0][1])
    own = client.get("/regions").text
    assert ("Take back" in own, "/regions/initial/approve" in own) == (True, False)
    regions.error = RegionNotReset("another person has to approve it")
    refused = {"slot": "0", "id": "8", FORM: token_on(client, "/regions")}
    assert client.post("/regions/initial/approve", data=refused).status_code == 409


def test_the_api_plans_orders_and_decides(tmp_path: Path) -> None:
    regions = Regions(needs_approval=True)
    client = console(tmp_path, FAILED, regions)

    def post(path: str, **body: object) -> dict[str, object]:
        token = client.get("/api/v1/token").json()["token"]
        answer = client.post(f"/api/v1/regions/initial{path}", json=body, headers={"x-form-token": token})
        assert answer.status_code == 200, answer.text
        found: dict[str, object] = answer.json()
        return found

    planned = post("/plan", slot=0)
    assert (planned["is_possible"], planned["text"]) == (True, "it would read EVENTS-0 <b>again</b>")
    assert post("", slot=0, because="a new handler") == {"slot": 0, "id": "8", "is_proposal": True}
    regions.proposal = regions.ordered[0]
    assert client.get("/api/v1/regions").json()["regions"][0]["proposal"] == "8"
    assert post("/approve", slot=0, id="8") == {"slot": 0}
    assert post("/reject", slot=0, id="8") == {"slot": 0}


class Sink:
    """A sink whose attributes are in memory. It refuses a qos of 7."""

    def __init__(self) -> None:
        self.given: list[Mapping[str, str]] = []

    def shown(self) -> Sequence[ShownAttribute]:
        qos = ShownAttribute("qos", 2, 1, "anna", instant_text(BEGINNING), "0, 1 or 2")
        return [ShownAttribute("url", "mqtt://a:1883", "mqtt://a:1883", None, None, "a URL"), qos]

    def set(self, given: Mapping[str, str], by: str) -> Sequence[str]:
        assert by
        if given.get("qos") == "7":
            raise ConfigurationError("--qos", "is refused; 0, 1 or 2 is expected")
        self.given.append(given)
        return ["change the configuration, too"]

    def reset(self) -> None:
        self.given.append({})


def test_the_attributes_of_the_sink_are_shown_set_and_set_back(tmp_path: Path) -> None:
    sink = Sink()
    client = client_of(make_sources(tmp_path, report=reporting(FAILED))._replace(regions=Regions(), sink=sink))
    page = client.get("/regions").text
    assert "anna at 2026-03-28 23:20:00" in without_times(page)
    form = {"url": "mqtt://a:1883", "qos": "0", FORM: token_on(client, "/regions")}
    assert client.post("/regions/sink", data=form).status_code == 303
    assert client.post("/regions/sink/reset", data={FORM: token_on(client, "/regions")}).status_code == 303
    assert sink.given == [{"qos": "0"}, {}]
    refused = client.post(
        "/regions/sink", data={**form, "url": "mqtt://u:secret@b", "qos": "7", FORM: token_on(client, "/regions")}
    )
    assert (refused.status_code, 'value="7"' in refused.text) == (400, True)
    assert "Nothing was changed: --qos: is refused" in refused.text
    (log,) = tmp_path.glob("console-audit-*.jsonl")
    assert "secret" not in log.read_text()
    token = client.get("/api/v1/token").json()["token"]
    answer = client.post("/api/v1/sink/set", json={"qos": "1"}, headers={"x-form-token": token}).json()
    assert (answer["notes"], answer["attributes"]) == (
        ["change the configuration, too"],
        client.get("/api/v1/sink").json()["attributes"],
    )


def test_without_a_sink_mqtt_the_page_has_no_attributes_and_the_api_says_so(tmp_path: Path) -> None:
    client = console(tmp_path, FAILED, Regions())
    assert "Sink mqtt" not in client.get("/regions").text
    assert client.get("/api/v1/sink").status_code == 409
