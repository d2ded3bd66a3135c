"""Two consoles of one group, as real processes: each shows the workers of both machines."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from harness.processes.operated_service import NOTIFICATION, OperatedService
from harness.waiting import DEADLINE_SECONDS, wait_until

pytestmark = pytest.mark.slow
HTTP = f"{NOTIFICATION}.http"


def address_of(service: OperatedService) -> str:
    service.run_directory.mkdir(parents=True, exist_ok=True)
    service.begin_verb("console")
    file = service.run_directory / "console.json"

    def find() -> str | None:
        urls: dict[str, str] = json.loads(file.read_text()).get("urls", {}) if file.exists() else {}
        return urls.get("console")

    return str(wait_until(find, "the console has an address"))


def process_ids_in(answer: dict[str, Any]) -> list[int]:
    return [each["report"]["worker_process_id"] for each in answer["workers"]]


def test_a_console_shows_the_workers_of_another_machine_until_it_is_gone(
    new_service: Callable[..., OperatedService], tmp_path: Path
) -> None:
    other = new_service(f"{HTTP}.port=0", f"{HTTP}.auth=bearer", directory=tmp_path / "other")
    token = other.verb("console", "add-token", "group", "--role", "viewer").stdout.split()[-1]
    other.start_and_wait()
    theirs = address_of(other)
    ours = new_service(
        f"{HTTP}.port=0", f'{HTTP}.peers=["{theirs}"]', f'{HTTP}.peers-token="{token}"', directory=tmp_path / "ours"
    )
    here = address_of(ours)

    def peer_status() -> dict[str, Any]:
        (found,) = httpx.get(f"{here}/api/v1/service?peers=true", timeout=DEADLINE_SECONDS).json()["peers"]
        return dict(found)

    answer = wait_until(lambda: (found := peer_status())["is_answering"] and found, "the peer has answered")
    assert (answer["url"], answer["state"]) == (theirs, "ready")
    assert other.process is not None
    process_ids = [other.process.pid]
    assert process_ids_in(answer) == process_ids
    assert theirs in httpx.get(f"{here}/workers", timeout=DEADLINE_SECONDS).text
    other.clear_away()
    gone = wait_until(lambda: not (found := peer_status())["is_answering"] and found, "the peer is gone")
    assert process_ids_in(gone) == process_ids, "the last report that was read before it was gone is shown"
    assert gone["as_of"] >= answer["as_of"]
    page = httpx.get(f"{here}/workers", timeout=DEADLINE_SECONDS).text
    assert f"{theirs} does not report its state: it does not answer" in page
    assert "What is shown of it is" in page
