"""`resequencer region reset --to-initial`: what it needs, what it refuses, and that a second person approves it if needed."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from notification_service.command_line import main
from notification_service.commands import region as command
from notification_service.status.report import State, StatusReport
from notification_service.status.service_report import service_report
from notification_service.status.sink_attributes import RegionOrderFile, RegionProposalFile
from notification_service.supervision.locks import RunningService
from notification_service.supervision.system_clock import SystemClock
from notification_service.wiring import regions
from resequencer.clock import instant_text

N = "payment-status-notification"
Run = Callable[..., int]


@pytest.fixture
def run(write: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `region reset` for a service with the process id 7 that has a worker in slot 0, and never answers."""
    (tmp_path / "run").mkdir()
    file = write(f'{N} {{ run-directory = "{tmp_path}/run", resequencer.storage-type = embedded }}')
    clock, now = SystemClock(), instant_text(SystemClock().now())
    report = service_report([StatusReport(State.READY, None, 7, "conf", now, now)], clock.now(), is_running=True)
    for module in (command, regions):
        monkeypatch.setattr(module, "find_service", lambda *_: RunningService("ready", report, "7"))
    return lambda *arguments: main(["region", "reset", *arguments, "--wait", "0", "--config", str(file)])


def test_the_order_has_the_reason_and_stands_until_the_worker_reads_it(run: Run, tmp_path: Path) -> None:
    assert run("--to-initial", "--because", "a wrong mapping") == 4
    order = RegionOrderFile(tmp_path / "run", 0).take(7)
    assert order is not None
    assert (order.to_initial, order.is_dry_run, order.because) == (True, False, "a wrong mapping")
    assert run("--force") == 4
    (log,) = (tmp_path / "run").glob("console-audit-*.jsonl")
    first, second = map(json.loads, log.read_text().splitlines())
    assert (first["action"], first["from"], first["slot"], first["because"]) == (
        *("region.reset-to-initial", "shell", 0),
        "a wrong mapping",
    )
    assert (second["action"], second["force"]) == ("region.reset", True)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--to-initial",), "give a reason"),
        (("--to-initial", "--because", " "), "give a reason"),
        (("--force", "--dry-run"), "go with --to-initial"),
        (("--force", "--because", "x"), "go with --to-initial"),
        (("--to-initial", "--dry-run", "--set", f"{N}.resequencer.storage-type=none"), "storage-type is none"),
        (("--to-initial", "--because", "x", "--worker", "3"), "there is no worker 3"),
    ],
)
def test_what_is_refused_is_no_order(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], why: str
) -> None:
    assert run(*arguments) == 1
    assert why in capsys.readouterr().err
    assert not RegionOrderFile(tmp_path / "run", 0).is_unread


def test_where_a_second_person_is_needed_it_is_proposed(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    approval = ("--set", f"{N}.http {{ auth = basic, approval = [reset-to-initial] }}")
    assert run("--to-initial", "--because", "x", *approval) == 0
    assert "another person has to approve it in the console" in capsys.readouterr().err
    proposal = RegionProposalFile(tmp_path / "run", 0).find(7)
    assert proposal is not None
    assert (proposal.because, RegionOrderFile(tmp_path / "run", 0).is_unread) == ("x", False)
