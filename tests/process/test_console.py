"""The console beside a real service: it starts and ends with it, and its own end harms nothing."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from harness.processes.operated_daemon import Daemon, has_ended
from harness.processes.operated_service import NOTIFICATION, OperatedService, envelope_line
from harness.waiting import DEADLINE_SECONDS, wait_until

pytestmark = pytest.mark.slow
HTTP = f"{NOTIFICATION}.http"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[OperatedService]:
    made = OperatedService(tmp_path, f"{HTTP}.enabled=true")
    yield made
    made.verb("stop")


@pytest.fixture
def daemon(service: OperatedService) -> Daemon:
    started = Daemon(service)
    started.start()
    return started


def console_of(service: OperatedService) -> dict[str, object]:
    found: dict[str, object] = wait_until(lambda: _read(service.run_directory / "console.json"), "the console has an address")
    return found


def address_of(service: OperatedService) -> str:
    return str(console_of(service)["urls"]["console"])  # type: ignore[index]


def _read(file: Path) -> dict[str, object] | None:
    found = json.loads(file.read_text()) if file.exists() else {}
    return found if found.get("urls") else None


def test_start_and_status_print_the_address_and_the_page_says_that_the_service_is_ready(
    daemon: Daemon, service: OperatedService
) -> None:
    address = address_of(service)
    assert f"console: {address}" in service.verb("status").stdout
    assert json.loads(service.verb("status", "--json").stdout)["http"]["console"] == address
    page = httpx.get(address, timeout=DEADLINE_SECONDS)
    assert page.status_code == 200
    assert "<strong>ready</strong>" in page.text


def test_the_metrics_have_an_address_of_their_own_and_need_no_login(daemon: Daemon, service: OperatedService) -> None:
    address = str(console_of(service)["urls"]["metrics"])  # type: ignore[index]
    assert f"metrics: {address}" in service.verb("status").stdout
    found = httpx.get(address, timeout=DEADLINE_SECONDS)
    assert found.status_code == 200
    assert "resequencer_ready 1.0" in found.text
    assert "resequencer_records_read_total" in found.text


def test_a_port_that_was_set_for_the_metrics_and_is_taken_is_a_note_and_the_console_runs(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        service = OperatedService(tmp_path, f"{HTTP}.enabled=true", f"{HTTP}.metrics.port={port}")
        Daemon(service).start()
        try:
            assert httpx.get(address_of(service), timeout=DEADLINE_SECONDS).status_code == 200
            assert f"note: no metrics are served: 127.0.0.1:{port} is taken" in service.verb("status").stdout
        finally:
            service.verb("stop")


def test_a_killed_console_is_started_again_and_no_worker_notices(daemon: Daemon, service: OperatedService) -> None:
    worker, before = daemon.find_worker(0), console_of(service)
    assert worker is not None
    os.kill(int(str(before["process_id"])), signal.SIGKILL)

    def is_another() -> bool:
        found = _read(service.run_directory / "console.json")
        return found is not None and found["process_id"] != before["process_id"]

    wait_until(is_another, "another console")
    assert httpx.get(address_of(service), timeout=DEADLINE_SECONDS).status_code == 200
    assert daemon.find_worker(0) == worker
    assert daemon.is_ready()


def test_stop_ends_the_console_too(daemon: Daemon, service: OperatedService) -> None:
    process = int(str(console_of(service)["process_id"]))
    assert service.verb("stop").stdout == "stopped\n"
    assert has_ended(process)
    assert not (service.run_directory / "console.json").exists()


def test_a_console_without_its_supervisor_ends(daemon: Daemon, service: OperatedService) -> None:
    process = int(str(console_of(service)["process_id"]))
    os.kill(daemon.supervisor, signal.SIGKILL)
    wait_until(lambda: has_ended(process), "the console has ended")


def test_a_taken_default_port_is_left_for_the_next_free_one(service: OperatedService) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):  # Taken by another process of this machine: that serves as well.
            taken.bind(("127.0.0.1", 8080))
            taken.listen()
        Daemon(service).start()
        assert not address_of(service).endswith(":8080")


def test_a_chosen_port_that_is_taken_is_a_note_and_the_service_is_ready(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        service = OperatedService(tmp_path, f"{HTTP}.port={port}")
        started = service.verb("start")
        try:
            assert started.returncode == 0
            assert service.verb("status").returncode == 0
            note = f"note: the console does not run: 127.0.0.1:{port} is taken"
            wait_until(lambda: note in service.verb("status").stdout, "the note")
        finally:
            service.verb("stop")


def test_the_threads_of_a_worker_can_be_printed_without_harm(daemon: Daemon, service: OperatedService) -> None:
    worker = daemon.find_worker(0)
    assert worker is not None
    os.kill(worker, signal.SIGUSR1)
    wait_until(lambda: "Current thread" in daemon.log_file.read_text(), "the stacks are in the log")
    service.in_directory.mkdir(exist_ok=True)
    (service.in_directory / "partition-0.jsonl").write_bytes(envelope_line("uow-1", 1) + b"\n")
    daemon.wait_for(lambda report: sum(report.notifications.values()) == 1, "the worker goes on")
