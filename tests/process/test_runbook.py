"""Each command of the runbook answers on a real service."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from harness.processes.operated_daemon import Daemon
from harness.processes.operated_service import NOTIFICATION, RESEQUENCER, OperatedService, envelope_line
from harness.waiting import DEADLINE_SECONDS, wait_until

pytestmark = pytest.mark.slow
HTTP = f"{NOTIFICATION}.http"
RUNBOOK = Path("docs/runbook.md").read_text(encoding="utf-8")
COMMANDS = list(
    dict.fromkeys(
        line for block in re.findall(r"^```sh\n(.*?)^```$", RUNBOOK, re.DOTALL | re.MULTILINE) for line in block.splitlines()
    )
)
ANSWERS = {
    "resequencer status": "uow-1 for sequence:1",
    "resequencer logs --lines 100": "ready",
    "resequencer units list --limit 10": "uow-1",
    "resequencer dead-letters list --state new": "undecodable",
    "resequencer check --connect": "stash-timeout",
    "resequencer units show uow-1": "sequence:1",
    "resequencer units list uow": "uow-1",
    "resequencer units list --older-than 1s": "uow-1",
    "resequencer status --json": '"last_exit"',
    "resequencer logs --lines 200": "was killed by SIGKILL",
    "resequencer dead-letters list --since 2026-01-01T00:00Z": "undecodable",
    "resequencer dead-letters list --unit uow-2": "conflicting-duplicate",
    "resequencer check": "stash-timeout",
    "resequencer partitions list": "read to",
    "resequencer region show": "file (source and sink)",
    "resequencer orders": "a look",
    "resequencer groups list --problems": "M-1 of ",
    "resequencer delivery gates": "tracker",
    "resequencer delivery jobs": "live-tracker",
    "resequencer delivery waiting tracker": "uow-3",
    "resequencer delivery blocked": "nothing is blocked",
    "resequencer delivery schedules": "schedule monthly: 0 0 1 * *",
}
"""By command: a word of its answer on the service below."""

_MESSAGE = {"GrpHdr": {"MsgId": "M-1", "InitgPty": {"Nm": "Muster"}}}
_PAYMENT = {"uniqueId": "payment", "objectType": "PAIN_001", "object": _MESSAGE}

REFUSED = {"resequencer region reset": "no region has failed"}
"""By command: what it says to the service below, of which no region has failed. tests/process/test_failed_region.py has one."""

ON_KAFKA = {"resequencer archive-topics": "for files, use `archive`"}
"""By command: what it says to the service below, which is on files. The processes of the jobs' tests run it on Kafka."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatedService]:
    """A payment waits, two records could not be handled, a receiver cannot be reached, and a worker was killed.

    One more payment belongs to a group, whose message says no total.
    """
    orders = f"{NOTIFICATION}.orders.enabled=true"
    receiver = f'{NOTIFICATION}.delivery.receivers.tracker.url="http://127.0.0.1:1"'
    schedule = f'{NOTIFICATION}.delivery.schedules.monthly={{ cron = "0 0 1 * *", keys.names = [a], receiver = tracker }}'
    groups = f"{NOTIFICATION}.aggregation.enabled=true"
    directory = tmp_path_factory.mktemp("service")
    made = OperatedService(directory, f"{RESEQUENCER}.stash-timeout=10m", orders, receiver, schedule, groups)
    made.tell("uow-1", 2)
    made.tell("uow-3", 1)
    made.append(
        b"this is no envelope",
        envelope_line("uow-2", 1),
        envelope_line("uow-2", 1).replace(b"PaymentReceived", b"PaymentSettled"),
        envelope_line("uow-4", 1, mdsObjects=[_PAYMENT]),
    )
    daemon = Daemon(made)
    daemon.start()
    worker = daemon.worker
    assert worker is not None
    daemon.wait_for(lambda report: report.units.waiting == 1 and report.partitions[0].lag == 0, "all is read")
    os.kill(worker, signal.SIGKILL)
    daemon.wait_for_another_worker(worker)
    assert made.verb("units", "retry", "uow-1", "--because", "a look").returncode == 1, "nothing of it is under retry"
    yield made
    made.verb("stop")


def test_every_command_has_an_answer() -> None:
    assert set(COMMANDS) == ANSWERS.keys() | REFUSED.keys() | ON_KAFKA.keys()


@pytest.mark.parametrize(("command", "expected"), [*REFUSED.items(), *ON_KAFKA.items()])
def test_a_command_that_does_not_suit_the_service_says_so(command: str, expected: str, service: OperatedService) -> None:
    done = service.verb(*shlex.split(command)[1:])
    assert done.returncode != 0
    assert expected in done.stderr


@pytest.mark.parametrize("command", ANSWERS)
def test_a_command_of_the_runbook_answers(command: str, service: OperatedService) -> None:
    program, *arguments = shlex.split(command)
    assert program == "resequencer"

    def asked() -> bool:
        done = service.verb(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return ANSWERS[command] in done.stdout

    wait_until(asked, f"{command} answers with {ANSWERS[command]!r}")


def test_the_lag_of_a_stopped_service_is_on_the_consoles_page(tmp_path: Path) -> None:
    service = OperatedService(tmp_path, f"{HTTP}.port=0", f"{HTTP}.metrics.port=0")
    service.tell("uow-1", 1)
    service.start_and_wait()
    service.wait_for("uow-1", 1)
    assert service.stop() == 0
    unread = envelope_line("uow-1", 2)
    service.append(unread)
    console = service.begin_verb("console")
    try:
        address = wait_until(lambda: _address(service.run_directory / "console.json"), "the console has an address")
        page = httpx.get(f"{address}/partitions", timeout=DEADLINE_SECONDS).text
        assert f"{len(unread) + 1:,}" in page
    finally:
        console.terminate()
        console.wait(DEADLINE_SECONDS)


def _address(file: Path) -> str:
    return str(json.loads(file.read_text()).get("urls", {}).get("console", "")) if file.exists() else ""
