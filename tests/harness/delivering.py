"""A service's delivery as processes: a job of notifications in a file, and delivery workers that a test starts and kills."""

import json
import subprocess
import sys
from pathlib import Path

from harness.processes.command import run_here

from notification_service.configuration.configuration import load
from notification_service.delivery.core.jobs import GateReport, Job
from notification_service.wiring.delivery import make_ledger

ROOT = Path(__file__).parents[2]


class Delivering:
    """Delivery in a directory: `notifications` of so many units, its configuration, and the delivery workers that run.

    `keys` are HOCON of the receiver `r`, beside its URL. `pairs` are unit and notification id of each notification.
    """

    def __init__(self, directory: Path, url: str, ledger: str | None, keys: str, units: int, per_unit: int) -> None:
        self.directory = directory
        (directory / "out").mkdir()
        self.notifications = directory / "out" / "notifications.jsonl"
        self.pairs = [(f"unit-{number % units}", f"N{number}") for number in range(units * per_unit)]
        lines = [{"key": unit, "headers": {"notification-id": key}, "value": {"a": key}} for unit, key in self.pairs]
        self.notifications.write_text("".join(json.dumps(each) + "\n" for each in lines))
        self.configuration = directory / "service.conf"
        written = "null" if ledger is None else f'"{ledger}"'
        self.configuration.write_text(f"""
            include "{ROOT}/conf/application.conf"
            payment-status-notification {{
              run-directory = "{directory}"
              delivery {{ worker.poll = 100ms, ledger.url = {written}, receivers.r {{ url = "{url}", live = false {keys} }} }}
            }}
        """)
        self.workers: list[subprocess.Popen[bytes]] = []
        self.log = (directory / "log").open("wb")

    def start_worker(self, *more: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "notification_service", "delivery", "run", "--config", str(self.configuration), *more]
        self.workers.append(subprocess.Popen(command, cwd=ROOT, stdout=self.log, stderr=self.log))
        return self.workers[-1]

    def start_job(self, name: str) -> None:
        started = run_here(ROOT, ["delivery", "start", "--config", str(self.configuration), name, "r", str(self.notifications)])
        assert started.returncode == 0, started.stderr

    def job(self, name: str) -> Job:
        ledger = make_ledger(load(self.configuration))
        try:
            found = ledger.find_job(name)
            assert found is not None
            return found
        finally:
            ledger.close()

    def gate(self) -> GateReport:
        ledger = make_ledger(load(self.configuration))
        try:
            return ledger.gates()[0]
        finally:
            ledger.close()

    def close(self) -> None:
        for each in self.workers:
            each.kill()
            each.wait()
        self.log.close()
