"""The health probes of a real service: what an orchestrator sees while workers die, drain and wait for a storage."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from harness.processes.operated_service import NOTIFICATION, RESEQUENCER, OperatedService
from harness.waiting import DEADLINE_SECONDS, wait_until

from notification_service.status.report import State
from notification_service.status.service_report import probes_file
from servers.server import hold_port

pytestmark = pytest.mark.slow
HTTP = f"{NOTIFICATION}.http"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[OperatedService]:
    """One that `run` supervises in the foreground, without a console; its port is free by the choice of the system."""
    made = OperatedService(tmp_path, f"{HTTP}.enabled=true", f"{HTTP}.probes.port=0")
    yield made
    made.clear_away()


def probes_of(service: OperatedService) -> str:
    def find() -> str | None:
        assert service.process is not None
        found = probes_file(service.run_directory).find(service.process.pid)
        return found.urls.get("probes") if found is not None else None

    found = wait_until(find, "the probes have an address")
    assert found is not None
    return found


def ask(url: str, question: str) -> httpx.Response:
    return httpx.get(f"{url}/health/{question}", timeout=DEADLINE_SECONDS)


def find_worker(service: OperatedService) -> int:
    report = service.wait_for_report(lambda report: report.state is State.READY, "ready")
    assert report.worker_process_id is not None
    return report.worker_process_id


def test_it_is_live_from_the_start_ready_when_status_says_so_and_status_prints_the_address(service: OperatedService) -> None:
    service.start(alone=False)
    url = probes_of(service)
    assert ask(url, "live").status_code == 200
    wait_until(lambda: ask(url, "ready").status_code == 200, "ready")
    assert ask(url, "ready").json() == {"state": "ready", "workers": [{"slot": 0, "state": "ready", "reason": None}]}
    status = service.verb("status")
    assert status.returncode == 0
    assert f"probes: {url}" in status.stdout


def test_it_stays_live_while_a_worker_that_died_is_started_again_and_is_not_ready_meanwhile(tmp_path: Path) -> None:
    service = OperatedService(tmp_path, f"{HTTP}.enabled=true", f"{HTTP}.probes.port=0")
    begun = service.begin_verb("supervise")
    service.process = begun
    try:
        url = probes_of(service)
        os.kill(find_worker(service), signal.SIGKILL)
        answer = wait_until(lambda: (found := ask(url, "ready")).status_code == 503 and found.json(), "not ready")
        assert "was killed by SIGKILL" in answer["workers"][0]["reason"]
        assert ask(url, "live").status_code == 200
        wait_until(lambda: ask(url, "ready").status_code == 200, "ready again")
    finally:
        service.stop()
        service.clear_away()


def test_it_stays_live_while_a_worker_takes_its_time_to_drain(service: OperatedService) -> None:
    service.start(alone=False)
    url, worker = probes_of(service), find_worker(service)
    os.kill(worker, signal.SIGSTOP)
    service.signal(signal.SIGTERM)
    assert ask(url, "live").status_code == 200
    os.kill(worker, signal.SIGCONT)
    assert service.wait() == 0
    with pytest.raises(httpx.ConnectError):
        ask(url, "live")


def test_it_is_live_and_not_ready_while_the_storage_is_away(service: OperatedService) -> None:
    with hold_port() as held:
        redis = f"redis://127.0.0.1:{held.getsockname()[1]}"
        service.start(f"{RESEQUENCER}.storage-type=redis", f'{NOTIFICATION}.storage.redis.url="{redis}"', alone=False)
        url = probes_of(service)
        wait_until(lambda: ask(url, "ready").json()["state"] == "storage unavailable", "the storage is unavailable")
        ready = ask(url, "ready")
        assert (ready.status_code, ready.json()["workers"][0]["state"]) == (503, "storage unavailable")
        assert ready.json()["workers"][0]["reason"]
        assert ask(url, "live").status_code == 200


def test_clients_that_send_nothing_delay_neither_the_probes_nor_the_service(service: OperatedService) -> None:
    service.start(alone=False)
    url = httpx.URL(probes_of(service))
    silent = [socket.create_connection((url.host, url.port), timeout=DEADLINE_SECONDS) for _ in range(100)]
    find_worker(service)
    assert ask(str(url), "ready").status_code == 200
    assert service.stop() == 0
    for each in silent:
        each.close()


def test_a_port_that_was_set_and_is_taken_is_a_note_and_the_service_runs(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        service = OperatedService(tmp_path, f"{HTTP}.enabled=true", f"{HTTP}.probes.port={port}")
        service.start(alone=False)
        try:
            find_worker(service)
            assert f"note: the health probes are not served: 127.0.0.1:{port} is taken" in service.verb("status").stdout
            assert service.stop() == 0
        finally:
            service.clear_away()


def test_without_http_there_are_no_probes(tmp_path: Path) -> None:
    service = OperatedService(tmp_path, f"{HTTP}.enabled=false").start(alone=False)
    try:
        find_worker(service)
        assert not (service.run_directory / "probes.json").exists()
        assert "probes" not in service.verb("status").stdout
    finally:
        service.stop()
        service.clear_away()
