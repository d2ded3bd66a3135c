"""The health probes' thread: its answers, and clients that send nothing, too much or too slowly."""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from harness.waiting import DEADLINE_SECONDS, wait_until

from notification_service.console.access.settings import ProbesEndpoint
from notification_service.status.file import StatusFile
from notification_service.status.report import Identity, State, report
from notification_service.status.service_report import Served, probes_file
from notification_service.supervision.probes import Health, Probes, WorkerHealth, health_of

NOW = 1_774_740_835_941
READY = Health(State.READY, (WorkerHealth(0, "ready", None),))
WAITS = Health(State.STORAGE_UNAVAILABLE, (WorkerHealth(0, "ready", None), WorkerHealth(1, "storage unavailable", "no answer")))


class Clock:
    def now(self) -> int:
        return NOW


Serve = Callable[..., str]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start probes with this health on a free port; returns their URL."""
    with ExitStack() as ended:

        def start(health: Health = READY, port: int = 0) -> str:
            probes = Probes(ProbesEndpoint(host="127.0.0.1", port=port), probes_file(tmp_path), lambda: health)
            probes.start()
            ended.callback(probes.close)
            return find_served(tmp_path).urls["probes"]

        yield start


def find_served(run_directory: Path) -> Served:
    found = probes_file(run_directory).find(os.getpid())
    assert found is not None
    return found


def connected(url: str) -> socket.socket:
    parsed = httpx.URL(url)
    return socket.create_connection((parsed.host, parsed.port), timeout=DEADLINE_SECONDS)


def test_a_ready_service_is_live_and_ready(serve: Serve) -> None:
    url = serve()
    assert httpx.get(f"{url}/health/live", timeout=DEADLINE_SECONDS).status_code == 200
    ready = httpx.get(f"{url}/health/ready", timeout=DEADLINE_SECONDS)
    assert (ready.status_code, ready.json()) == (
        200,
        {"state": "ready", "workers": [{"slot": 0, "state": "ready", "reason": None}]},
    )


def test_a_service_that_is_not_ready_is_live_and_says_which_worker_waits_for_what(serve: Serve) -> None:
    url = serve(WAITS)
    assert httpx.get(f"{url}/health/live", timeout=DEADLINE_SECONDS).status_code == 200
    ready = httpx.get(f"{url}/health/ready?verbose", timeout=DEADLINE_SECONDS)
    assert ready.status_code == 503
    assert ready.json()["workers"][1] == {"slot": 1, "state": "storage unavailable", "reason": "no answer"}


def test_other_paths_and_methods_are_refused(serve: Serve) -> None:
    url = serve()
    assert httpx.get(f"{url}/health", timeout=DEADLINE_SECONDS).status_code == 404
    assert httpx.post(f"{url}/health/ready", timeout=DEADLINE_SECONDS).status_code == 405
    assert httpx.head(f"{url}/health/ready", timeout=DEADLINE_SECONDS).content == b""


def test_clients_that_send_nothing_lock_out_no_other(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("notification_service.supervision.probes._HEAD_SECONDS", 3_600)
    url = serve()
    with ExitStack() as silent:
        for _ in range(200):
            silent.enter_context(connected(url))
        assert httpx.get(f"{url}/health/live", timeout=DEADLINE_SECONDS).status_code == 200


@pytest.mark.slow
def test_a_client_that_sends_its_request_too_slowly_is_closed(serve: Serve) -> None:
    with connected(serve()) as slow:
        slow.sendall(b"GET /health/live HT")
        assert slow.recv(1) == b""


def test_a_client_that_sends_without_end_is_closed_and_the_next_one_is_answered(serve: Serve) -> None:
    url = serve()
    with connected(url) as endless:

        def is_closed() -> bool:
            try:
                endless.sendall(b"x" * 10_000)
            except OSError:
                return True
            return False

        wait_until(is_closed, "the connection is closed")
    assert httpx.get(f"{url}/health/live", timeout=DEADLINE_SECONDS).status_code == 200


def test_garbage_gets_an_answer_and_a_client_that_is_gone_harms_nothing(serve: Serve) -> None:
    url = serve()
    with connected(url) as odd:
        odd.sendall(b"\x00\xff\r\n\r\n")
        assert odd.recv(100).startswith(b"HTTP/1.1 404")
    connected(url).close()
    assert httpx.get(f"{url}/health/live", timeout=DEADLINE_SECONDS).status_code == 200


def test_a_default_port_that_is_taken_gives_way_to_the_next_free_one(serve: Serve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert httpx.URL(serve(port=port)).port != port


def test_a_port_that_was_set_and_is_taken_is_reported_and_raises_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        endpoint = ProbesEndpoint(host="127.0.0.1", port=port, is_port_chosen=True)
        Probes(endpoint, probes_file(tmp_path), lambda: READY).start()
        found = find_served(tmp_path)
    assert not found.urls
    assert f"127.0.0.1:{port} is taken" in str(found.problem)


def test_the_health_is_that_of_this_supervisors_workers_only(tmp_path: Path) -> None:
    ours = Identity(17, "local.conf", NOW)
    assert health_of(tmp_path, 17, Clock()) == Health("starting", ())
    StatusFile(tmp_path).write(report(ours, State.READY, None, NOW))
    assert health_of(tmp_path, 17, Clock()) == Health("ready", (WorkerHealth(0, "ready", None),))
    assert health_of(tmp_path, 18, Clock()) == Health("starting", ())
    StatusFile(tmp_path).write(report(ours, State.READY, None, NOW - 60_000))
    assert health_of(tmp_path, 17, Clock()).state == "stale"


def test_a_report_that_cannot_be_understood_makes_it_not_ready_and_the_thread_goes_on(tmp_path: Path) -> None:
    def fail() -> Health:
        raise ValueError("Invalid isoformat string")

    probes = Probes(ProbesEndpoint(host="127.0.0.1", port=0), probes_file(tmp_path), fail)
    probes.start()
    try:
        url = find_served(tmp_path).urls["probes"]
        assert httpx.get(f"{url}/health/ready", timeout=DEADLINE_SECONDS).status_code == 503
        assert httpx.get(f"{url}/health/live", timeout=DEADLINE_SECONDS).status_code == 200
    finally:
        probes.close()
