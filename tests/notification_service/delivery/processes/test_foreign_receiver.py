"""Delivery to a receiver that others could have written: another HTTP library, and idempotency keys that it insists on."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import harness.foreign_receiver
import httpx
import pytest
from harness.delivering import Delivering
from harness.waiting import DEADLINE_SECONDS, wait_until

from notification_service.delivery.core.jobs import JobState

pytestmark = pytest.mark.slow
UNITS, PER_UNIT = 50, 8
RECEIVER = ', steps = deliver, timeout = 1s, rate = "100/s", retry { first = 50ms, attempts = 100 }, suspension.probe = 300ms'
BREAKS, SEED = 0.1, 11


class Foreign:
    """The receiver as a process."""

    def __init__(self, directory: Path, breaks: float) -> None:
        self._journal = directory / "journal.jsonl"
        with socket.create_server(("127.0.0.1", 0)) as listening, (directory / "receiver.log").open("wb") as log:
            self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            arguments = [str(listening.fileno()), str(self._journal), str(breaks), str(SEED)]
            command = [sys.executable, harness.foreign_receiver.__file__, *arguments]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, pass_fds=[listening.fileno()])

    def is_ready(self) -> bool:
        try:
            return httpx.get(self.url, trust_env=False, timeout=DEADLINE_SECONDS).status_code == 404
        except httpx.HTTPError:
            return False

    def calls(self) -> list[dict[str, Any]]:
        if not self._journal.exists():
            return []
        return [json.loads(line) for line in self._journal.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def post(self, unit: str, key: str | None, body: bytes = b"{}") -> httpx.Response:
        headers = {} if key is None else {"idempotency-key": key}
        return httpx.post(
            f"{self.url}/payments/{unit}/statuses", content=body, headers=headers, trust_env=False, timeout=DEADLINE_SECONDS
        )


@pytest.fixture
def foreign(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Foreign]:
    """A receiver that breaks so many of its connections as the test's parameter says."""
    started = Foreign(tmp_path, request.param)
    try:
        wait_until(started.is_ready, "the receiver answers")
        yield started
    finally:
        started.process.kill()
        started.process.wait()


@pytest.mark.parametrize("foreign", [0.0], indirect=True)
def test_the_receiver_insists_on_idempotency_keys(foreign: Foreign) -> None:
    assert [foreign.post("u", key).status_code for key in (None, "", "a b", '"open', "x" * 300)] == [400] * 5
    first = foreign.post("u", '"k 1"')
    assert (first.status_code, first.json()) == (201, {"number": 1})
    assert foreign.post("u", "k2").json() == {"number": 2}
    assert (foreign.post("u", '"k 1"').status_code, foreign.post("u", '"k 1"').json()) == (201, {"number": 1})
    assert [foreign.post("u", "k2", b"[]").status_code, foreign.post("v", "k2").status_code] == [422, 422]
    became = [each["is"] for each in foreign.calls()]
    assert became == ["malformed"] * 5 + ["taken"] * 2 + ["repeated"] * 2 + ["reused"] * 2


@pytest.mark.parametrize("foreign", [1.0], indirect=True)
def test_the_receiver_takes_a_call_before_it_breaks_the_connection(foreign: Foreign) -> None:
    for _ in range(2):
        with pytest.raises(httpx.RemoteProtocolError):
            foreign.post("u", "k")
    assert [each["is"] for each in foreign.calls()] == ["taken", "repeated"]


@pytest.mark.parametrize("foreign", [BREAKS], indirect=True)
def test_each_notification_is_taken_once_and_in_order_although_connections_break_and_a_worker_is_killed(
    tmp_path: Path, foreign: Foreign
) -> None:
    it = Delivering(tmp_path, foreign.url, None, RECEIVER, UNITS, PER_UNIT)
    try:
        it.start_job("j")
        killed, other = it.start_worker(), it.start_worker()
        wait_until(lambda: len(foreign.calls()) >= len(it.pairs) / 4, "a quarter is delivered")
        killed.kill()
        wait_until(lambda: it.job("j").state is JobState.COMPLETE, "the other worker delivers the rest", look_seconds=0.3)
        assert other.poll() is None, (tmp_path / "log").read_text()[-3_000:]
        job, calls = it.job("j"), foreign.calls()
    finally:
        it.close()
    assert (job.processed, job.failed, job.rejected) == (len(it.pairs), 0, 0)
    bodies = {key: {"a": key} for _, key in it.pairs}
    taken = [each for each in calls if each["is"] == "taken"]
    repeated = [each for each in calls if each["is"] == "repeated"]
    assert len(taken) + len(repeated) == len(calls)
    assert _by_unit((each["unit"], each["key"]) for each in taken) == _by_unit(it.pairs)
    assert all(json.loads(each["body"]) == bodies[each["key"]] for each in calls)
    assert len(repeated) >= len(it.pairs) * BREAKS / 3
    assert job.retries.back_off > 0


def _by_unit(pairs: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for unit, key in pairs:
        found.setdefault(unit, []).append(key)
    return found
