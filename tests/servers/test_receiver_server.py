"""The receiver as a process: what it knows after a kill in the midst of calls, and its settings."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from socket import create_server
from typing import Any

import httpx
import pytest
from harness.waiting import DEADLINE_SECONDS

from notification_service.simulator.receiver.behaviour import Behaviour
from notification_service.simulator.receiver.check import compare
from notification_service.simulator.receiver.receiver import TAKEN, read_lines
from servers.receiver import ReceiverServer
from servers.server import LOOPBACK, StartFailed

pytestmark = pytest.mark.slow

OwnServer = Callable[..., Any]


def test_what_it_acknowledged_before_a_kill_is_known_afterwards(own_server: OwnServer) -> None:
    server = own_server(ReceiverServer).start()
    with ThreadPoolExecutor(4) as threads:
        calls = [threads.submit(call_until_it_dies, server.url, f"unit-{number}") for number in range(4)]
        while server.counts()["taken"] < 200:
            pass
        server.kill()
        acknowledged = [pair for call in calls for pair in call.result()]
    assert len(acknowledged) >= 200 - 4
    taken = [(line["unit"], line["key"]) for line in read_lines(server.data / TAKEN)]
    assert set(acknowledged) <= set(taken)
    assert len(taken) <= len(acknowledged) + 4  # A call of each thread was under way.
    assert compare(server.data, taken).is_good

    with (server.data / TAKEN).open("a") as file:
        file.write('{"at": 1.0, "unit": "cut o')
    server.start()
    with httpx.Client(base_url=server.url, trust_env=False, timeout=DEADLINE_SECONDS) as client:
        assert {post(client, unit, key) for unit, key in taken} == {200}
        assert post(client, "unit-0", "new") == 200
    counts = server.counts()
    assert (counts["repeated"], counts["taken"]) == (len(taken), 1)
    assert [(line["unit"], line["key"]) for line in read_lines(server.data / TAKEN)] == [*taken, ("unit-0", "new")]


def test_units_stay_announced_over_a_restart_and_its_settings_are_valid_again(own_server: OwnServer) -> None:
    server = own_server(ReceiverServer, Behaviour(announcing=True, rejects=0.5)).start()
    with httpx.Client(base_url=server.url, trust_env=False, timeout=DEADLINE_SECONDS) as client:
        units = [f"unit-{number}" for number in range(20)]
        answers = {unit: client.put(f"/payments/{unit}").status_code for unit in units}
        assert set(answers.values()) == {201, 422}
        server.behave(asleep=True, retry_after=3)
        assert client.put("/payments/other").status_code == 503
        server.kill()
        server.start()
        assert {unit: client.put(f"/payments/{unit}").status_code for unit in units} == {
            unit: 409 if status == 201 else 422 for unit, status in answers.items()
        }
        assert compare(server.data, [(unit, "1") for unit in units]).refused == sum(each == 422 for each in answers.values())


def test_a_paused_one_answers_when_it_is_resumed(own_server: OwnServer) -> None:
    server = own_server(ReceiverServer).start()
    with httpx.Client(base_url=server.url, trust_env=False, timeout=0.2) as client:
        server.pause()
        with pytest.raises(httpx.ReadTimeout):
            post(client, "u", "1")
        server.resume()
        server.wait_until_ready()
        assert client.post("/payments/u/statuses", headers={"Idempotency-Key": "1"}, timeout=60).status_code == 200
    assert [line["key"] for line in read_lines(server.data / TAKEN)] == ["1"]
    server.stop()
    assert not server.is_running


def test_a_port_that_another_process_took_is_refused(own_server: OwnServer) -> None:
    server = own_server(ReceiverServer)
    with create_server((LOOPBACK, server.ports["receiver"])), pytest.raises(StartFailed, match="another process uses it"):
        server.start()


def test_a_setting_that_does_not_exist_is_said(own_server: OwnServer) -> None:
    with pytest.raises(StartFailed, match=r"(?s)receiver ended by itself.*'faults' takes a share from 0 to 1"):
        own_server(ReceiverServer, Behaviour(faults=2)).start()


def call_until_it_dies(url: str, unit: str) -> list[tuple[str, str]]:
    """Return unit and key of each acknowledged notification."""
    acknowledged: list[tuple[str, str]] = []
    with httpx.Client(base_url=url, trust_env=False, timeout=DEADLINE_SECONDS) as client:
        for number in count():
            try:
                assert post(client, unit, f"{unit}-{number}") == 200
            except httpx.TransportError:
                break
            acknowledged.append((unit, f"{unit}-{number}"))
    return acknowledged


def post(client: httpx.Client, unit: str, key: str) -> int:
    return client.post(f"/payments/{unit}/statuses", content=b"{}", headers={"Idempotency-Key": key}).status_code
