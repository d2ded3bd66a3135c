"""The demo with its delivery: to a receiver that sleeps and forgets, and to one that fails more often than is tried."""

import subprocess
import sys
from pathlib import Path

import pytest

from notification_service.command_line import main
from notification_service.commands import demo_delivery as delivery

pytestmark = pytest.mark.slow


def test_the_notifications_reach_a_receiver_that_sleeps_and_forgets(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "notification_service", "demo", "--delivery", "--units", "60", "--seed", "7"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    shown = ended.stdout.partition("What was delivered")[2]
    cells = [[cell.strip() for cell in line.strip("│ ").split("│")] for line in shown.splitlines() if line.startswith("│")]
    figures = dict(cells)
    assert int(figures["notifications"]) == int(figures["processed"]) + int(figures["rejected by the receiver"]) > 300
    assert figures["failed"] == "0"
    assert int(figures["called again after a suspension"]) > 0
    assert int(figures["probes while asleep"]) > 0
    assert float(figures["time asleep"].removesuffix(" s")) >= 3
    for promise in ("lost", "doubled", "out of order", "unexpected", "needless calls"):
        (line,) = [line for line in shown.splitlines() if line.startswith(f"{promise} ")]
        assert line.split()[-1] == "0", line


def test_a_delivery_that_failed_is_the_demos_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(delivery, "_SETTINGS", delivery._SETTINGS.replace("attempts = 50", "attempts = 1"))
    monkeypatch.setattr(delivery, "_BEHAVIOUR", ("--faults", "0.2"))
    assert main(["demo", "--delivery", "--units", "20", "--seed", "1"]) == 1
    shown = capsys.readouterr().out.partition("What was delivered")[2]
    (failed,) = [line for line in shown.splitlines() if line.strip("│ ").startswith("failed")]
    assert int(failed.strip("│ ").rpartition("│")[2]) > 0
    assert "500" in shown
