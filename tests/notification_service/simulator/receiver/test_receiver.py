"""The receiver over HTTP: what it takes, and how it sleeps, refuses, limits, forgets and fails."""

import json
import threading
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, fields
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import pytest
from harness.waiting import DEADLINE_SECONDS

from notification_service.simulator.receiver.behaviour import ALWAYS, Behaviour, BehaviourRefused, add_options, behaviour_of
from notification_service.simulator.receiver.http import ReceiverHttpServer
from notification_service.simulator.receiver.receiver import CALLS, TAKEN, Receiver


@dataclass
class Served:
    """A receiver behind HTTP, in this process, whose clock stands still."""

    directory: Path
    now: float = 1_000_000.0

    def __post_init__(self) -> None:
        self.receiver = Receiver(self.directory, Behaviour(), lambda: self.now)
        self._server = ReceiverHttpServer(0, self.receiver)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.005})
        self._thread.start()
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{self._server.server_address[1]}", trust_env=False, timeout=DEADLINE_SECONDS
        )

    def close(self) -> None:
        self.client.close()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self.receiver.close()

    def behave(self, **settings: object) -> httpx.Response:
        return self.client.put("/_behaviour", json={name.replace("_", "-"): value for name, value in settings.items()})

    def counts(self) -> dict[str, Any]:
        counts: dict[str, Any] = self.client.get("/_counts").json()
        return counts

    def announce(self, unit: str) -> int:
        return self.client.put(f"/payments/{unit}").status_code

    def find(self, unit: str) -> int:
        return self.client.get(f"/payments/{unit}").status_code

    def post(self, unit: str, key: str | None = None, **headers: str) -> httpx.Response:
        known = {"Idempotency-Key": key} if key is not None else {}
        return self.client.post(f"/payments/{unit}/statuses", content=b"{}", headers=known | headers)

    def taken(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.directory / TAKEN).read_text().splitlines()]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    yield served
    served.close()


def test_a_notification_is_written_down_before_it_is_acknowledged(served: Served) -> None:
    answer = served.client.post(
        "/payments/a%2Fb/statuses?x=1", content=b"{}", headers={"Idempotency-Key": "1", "transaction-status": "ACSC"}
    )
    assert (answer.status_code, answer.json()) == (200, {"result": "taken"})
    path = "/payments/a%2Fb/statuses?x=1"
    assert served.taken() == [{"at": served.now, "unit": "a/b", "key": "1", "status": "ACSC", "path": path}]


def test_a_key_is_taken_once_and_acknowledged_each_time(served: Served) -> None:
    assert [served.post("u", key).status_code for key in ("1", "2", "1")] == [200, 200, 200]
    assert [line["key"] for line in served.taken()] == ["1", "2"]
    assert (served.counts()["taken"], served.counts()["repeated"]) == (2, 1)


def test_repeats_and_calls_whose_answer_is_lost_or_late_are_written_down(served: Served) -> None:
    path, headers = "/payments/u/statuses", {"idempotency-key": "1"}
    for behaviour in ({"breaks": 1.0}, {"breaks": 0.0, "lates": 1.0, "late_seconds": 0.0}, {"lates": 0.0}):
        served.behave(**behaviour)
        served.receiver.begin("POST", path, headers)
        served.receiver.end()
    calls = [json.loads(line) for line in (served.directory / CALLS).read_text().splitlines()]
    settings = [(each["is"], each["unit"], each["key"]) for each in calls]
    assert settings == [(kind, "u", "1") for kind in ("unanswered", "repeated", "unanswered", "repeated")]


def test_without_a_key_each_call_is_taken(served: Served) -> None:
    assert [served.post("u").status_code for _ in range(2)] == [200, 200]
    assert [(line["key"], line["status"]) for line in served.taken()] == [(None, None)] * 2


def test_a_unit_is_announced_once_and_found_when_it_is_digested(served: Served) -> None:
    served.behave(digest_seconds=30)
    assert served.find("u") == 404
    assert [served.announce("u"), served.announce("u")] == [201, 409]
    served.now += 29
    assert served.find("u") == 404
    served.now += 1
    assert served.find("u") == 200
    assert served.counts()["announced"] == 1


def test_where_units_are_announced_a_notification_of_another_unit_is_not_found(served: Served) -> None:
    served.behave(announcing=True)
    assert served.post("u", "1").status_code == 404
    served.announce("u")
    assert served.post("u", "1").status_code == 200
    assert served.counts()["refused"] == {"not-announced": 1}


def test_asleep_it_refuses_every_call_and_counts_the_probes(served: Served) -> None:
    served.now += 5
    assert served.behave(asleep=[[10, 20]], retry_after=7).json()["asleep"] == [[15, 25]]  # From the change on.
    assert served.announce("u") == 201
    served.now += 10
    answer = served.post("u", "1")
    assert (answer.status_code, answer.text) == (503, "The receiver is currently suspended")
    assert answer.headers["Retry-After"] == "7"
    assert [served.announce("v"), served.find("u")] == [503, 503]
    served.now += 10
    assert served.post("u", "1").status_code == 200
    assert served.counts()["probes-while-asleep"] == 3


def test_it_sleeps_until_it_is_woken(served: Served) -> None:
    assert served.behave(asleep=True).json()["asleep"] == [[0, None]]
    served.now += 1e8
    answer = served.post("u", "1")
    assert answer.status_code == 503
    assert "Retry-After" not in answer.headers
    served.behave(asleep=False)
    assert served.post("u", "1").status_code == 200


def test_more_concurrent_calls_than_allowed_are_refused(served: Served) -> None:
    served.behave(connections=2)
    path, headers = "/payments/u/statuses", {"idempotency-key": "1"}
    assert [served.receiver.begin("POST", path, headers).status for _ in range(2)] == [200, 200]
    answer = served.post("u", "2")
    assert (answer.status_code, answer.text) == (429, "2 connections allowed")
    served.receiver.end()
    assert [served.post("u", str(each)).status_code for each in range(50)] == [200] * 50  # One after the other.
    assert served.counts()["most-concurrent"] == 3


def test_more_calls_per_second_than_allowed_are_refused_for_a_while(served: Served) -> None:
    served.behave(rate=4)
    assert [served.post("u").status_code for _ in range(5)] == [200] * 4 + [429]
    assert served.post("u").headers["Retry-After"] == "1"
    served.now += 0.5
    assert [served.post("u").status_code for _ in range(3)] == [200, 200, 429]
    served.now += 100
    assert [served.post("u").status_code for _ in range(5)] == [200] * 4 + [429]
    served.behave(rate=0.1)
    assert [served.post("u").status_code, served.post("u").headers["Retry-After"]] == [200, "10"]


def test_a_forgotten_announcement_is_wanted_again(served: Served) -> None:
    served.behave(announcing=True)
    for unit in ("early", "untouched", "found"):
        served.announce(unit)
    served.now += 1
    served.behave(forgets=[[0, 10]])
    assert served.post("early", "1").status_code == 404
    assert served.find("found") == 404
    assert served.announce("early") == 201
    assert served.post("early", "1").status_code == 200
    served.now += 10
    assert served.post("untouched", "2").status_code == 200
    assert served.post("found", "3").status_code == 404


def test_what_is_true_from_now_on_forgets_what_was_announced_until_now(served: Served) -> None:
    served.behave(announcing=True)
    served.announce("u")
    served.now += 1
    served.behave(forgets=True)
    assert served.post("u", "1").status_code == 404
    assert served.announce("u") == 201
    served.now += 1
    assert served.post("u", "1").status_code == 200


def test_the_same_share_of_units_is_refused_for_ever(served: Served) -> None:
    served.behave(rejects=0.3, seed=7)
    units = [f"unit-{number}" for number in range(60)]
    refused = {unit for unit in units if served.post(unit).status_code == 422}
    assert 8 < len(refused) < 32
    assert {unit for unit in units if served.announce(unit) == 422} == refused
    assert served.post(min(refused)).json() == {"error": "not eligible"}
    served.behave(seed=8)
    assert {unit for unit in units if served.announce(unit) == 422} != refused


def test_a_share_of_calls_fails_and_the_seed_says_which(served: Served) -> None:
    def statuses() -> list[int]:
        served.behave(faults=0.2, unknown=0.2, seed=1)
        return [served.post("u").status_code for _ in range(100)]

    found = statuses()
    assert found == statuses()
    assert {status: found.count(status) > 5 for status in set(found)} == {200: True, 418: True, 500: True}
    assert served.counts()["taken"] == 2 * found.count(200)


def test_a_client_may_have_lost_its_authority(served: Served) -> None:
    served.behave(unauthorized=True)
    assert [served.announce("u"), served.find("u"), served.post("u").status_code] == [401] * 3
    served.behave(unauthorized=False)
    assert served.announce("u") == 201


def test_it_may_take_a_notification_and_then_break_the_connection(served: Served) -> None:
    served.behave(breaks=1)
    with pytest.raises(httpx.RemoteProtocolError):
        served.post("u", "1")
    served.behave(breaks=0)
    assert served.post("u", "1").status_code == 200
    counts = served.counts()
    assert [counts[name] for name in ("taken", "repeated", "broken")] == [1, 1, 1]


def test_it_may_answer_later_than_the_client_waits(served: Served) -> None:
    served.behave(lates=1, late_seconds=0.1)
    with pytest.raises(httpx.ReadTimeout):
        served.client.post("/payments/u/statuses", content=b"", headers={"Idempotency-Key": "1"}, timeout=0.02)
    assert [line["key"] for line in served.taken()] == ["1"]
    assert served.post("u", "2").status_code == 200
    assert served.counts()["late"] == 2


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"sleeps": True}, "there is no 'sleeps'; there are announcing, asleep"),
        ({"asleep": [[20, 10]]}, "'asleep' takes true, false, or a list of [from, to] in seconds"),
        ({"forgets": 5}, "'forgets' takes true, false, or a list"),
        ({"faults": 1.5}, "'faults' takes a share from 0 to 1, not 1.5"),
        ({"connections": 2.5}, "'connections' takes a whole number"),
        ({"rate": True}, "'rate' takes a number from 0 on"),
        ({"announcing": 1}, "'announcing' takes true or false"),
        ([], "a behaviour is a JSON object"),
    ],
)
def test_a_behaviour_that_does_not_exist_is_refused_and_changes_nothing(served: Served, settings: object, problem: str) -> None:
    before = served.client.get("/_behaviour").json()
    answer = served.client.put("/_behaviour", json={"seed": 9} | settings if isinstance(settings, dict) else settings)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(problem)
    assert served.client.get("/_behaviour").json() == before


def test_other_paths_are_not_found_and_a_body_has_to_say_its_length(served: Served) -> None:
    assert served.client.get("/_other").status_code == 404
    assert served.client.get("/other").status_code == 404
    with closing(
        HTTPConnection(served.client.base_url.host, served.client.base_url.port or 0, timeout=DEADLINE_SECONDS)
    ) as connection:
        connection.putrequest("POST", "/payments/u/statuses")
        connection.putheader("Transfer-Encoding", "chunked")
        connection.endheaders()
        assert connection.getresponse().status == 411
    assert served.counts()["taken"] == 0


def test_each_behaviour_is_an_option_of_the_command_line() -> None:
    shares = {"rejects": 0.1, "faults": 0.2, "breaks": 0.3, "lates": 0.4, "unknown": 0.25}
    numbers = {"retry_after": 5, "connections": 6, "rate": 0.5, "digest_seconds": 7.5, "late_seconds": 8.5, "seed": 9}
    windows = {"asleep": ((1.0, 2.5), (3.0, 4.0)), "forgets": ALWAYS}
    settings: dict[str, Any] = shares | numbers | windows | {"announcing": True, "unauthorized": True}
    assert settings.keys() == {each.name for each in fields(Behaviour)}
    behaviour = Behaviour(**settings)
    assert parsed(*behaviour.as_options()) == behaviour
    assert parsed() == Behaviour()
    assert Behaviour().as_options() == []
    with pytest.raises(BehaviourRefused, match="'faults' takes a share"):
        parsed("--faults=2")


def parsed(*options: str) -> Behaviour:
    parser = ArgumentParser()
    add_options(parser)
    return behaviour_of(parser.parse_args(options))
