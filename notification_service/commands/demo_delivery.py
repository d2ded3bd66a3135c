"""The second half of `resequencer demo --delivery`: the notifications are delivered to a receiver that behaves badly."""

import socket
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from time import monotonic, sleep

import httpx
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from notification_service.configuration.configuration import load
from notification_service.delivery.core.jobs import GateReport, Job, JobState
from notification_service.delivery.ledger.ledger import Ledger
from notification_service.supervision.service_process import own_command
from notification_service.wiring.delivery import make_ledger
from notification_service.wiring.delivery_sources import source_of_files
from resequencer.errors import ResequencerError
from storage.private_file import make_private

_RECEIVER_MODULE = "notification_service.simulator.receiver"
_JOB, _RECEIVER = "demo", "demo"
_LOOK_SECONDS = 0.2
_START_SECONDS = 30
_STALL_SECONDS = 120
_REASONS = 5

_BEHAVIOUR = ("--announcing", "--rejects", "0.05", "--connections", "8", "--breaks", "0.01", "--faults", "0.01")
_TROUBLES: tuple[tuple[float, Mapping[str, object]], ...] = ((0.3, {"asleep": [[0, 4]]}), (0.6, {"forgets": [[0, 2]]}))
"""After which share of the rows the receiver sleeps for four seconds, and forgets announcements for two."""

_SETTINGS = """
    live = false, steps = announce-deliver, timeout = 2s, reject.when.status = [422], limit.when.body = "connections allowed",
    suspension { probe = 500ms, when { status = [503], body = "currently suspended" } }, retry { first = 200ms, attempts = 50 }
"""


class DeliveryStalled(ResequencerError):
    """Nothing was delivered for a long time."""


def deliver(config: Path, overrides: Sequence[str], directory: Path, progress: Progress) -> "Delivered":
    """Deliver the notifications of a run of the demo, by two workers, and return what came of it.

    Raises:
        DeliveryStalled: Nothing was delivered for two minutes.
    """
    notifications = directory / "out" / "notifications.jsonl"
    receiver, port = directory / "receiver", _free_port()
    settings = " ".join(_SETTINGS.split())
    more = [
        "payment-status-notification.delivery.ledger.url=null",
        "payment-status-notification.delivery.ledger.file=null",
        f'payment-status-notification.delivery.receivers={{ {_RECEIVER} {{ url = "{_receiver_url(port)}", {settings} }} }}',
    ]
    arguments = ["--config", str(config), *(text for each in (*overrides, *more) for text in ("--set", each))]
    served = ["--directory", str(receiver), "--port", str(port), *_BEHAVIOUR]
    work = ["delivery", "run", *arguments]
    with (
        closing(make_ledger(load(config, [*overrides, *more]))) as ledger,
        make_private(directory / "delivery.log").open("wb") as log,
        _running(own_command(*served, module=_RECEIVER_MODULE), log.fileno()) as server,
    ):
        _wait_for(port, server)
        ledger.start_job(_JOB, _RECEIVER, source_of_files(load(config, [*overrides, *more]), [notifications]), "demo")
        begun = monotonic()
        with _running(own_command(*work), log.fileno()) as first, _running(own_command(*work), log.fileno()) as second:
            job = _watch(ledger, progress, (server, first, second), directory / "delivery.log", port)
        seconds = monotonic() - begun
        (gate,) = ledger.gates()
        reasons = Counter(each.error for each in ledger.errors(_JOB, job.failed + job.rejected) if each.status == "failed")
    check = own_command("check", "--directory", str(receiver), str(notifications), module=_RECEIVER_MODULE)
    compared = subprocess.run(check, capture_output=True, text=True, check=False)  # noqa: S603 - all ours.
    return Delivered(job, gate, reasons, seconds, compared.stdout, is_good=compared.returncode == 0)


class Delivered:
    """What came of a delivery. `comparison` is what the check of the receiver found, `is_good` whether nothing deviates there."""

    def __init__(
        self, job: Job, gate: GateReport, reasons: Counter[str], seconds: float, comparison: str, *, is_good: bool
    ) -> None:
        self._job, self._gate, self._reasons, self._seconds, self._comparison = job, gate, reasons, seconds, comparison
        self.is_good = is_good and job.state is JobState.COMPLETE and job.open == 0

    def show(self, console: Console) -> None:
        job, retries = self._job, self._job.retries
        table = Table(title="What was delivered", show_header=False, min_width=60)
        table.add_column("what")
        table.add_column("figure", justify="right")
        rows = (
            ("notifications", job.ingested),
            ("processed", job.processed),
            ("rejected by the receiver", job.rejected),
            ("failed", job.failed),
            *((f"  {reason}", count) for reason, count in self._reasons.most_common(_REASONS)),
            ("called again after a suspension", retries.suspension),
            ("called again after a back-off", retries.back_off),
            ("called again after a limit", retries.limit),
            ("time asleep", f"{self._gate.slept_ms / 1_000:.1f} s"),
            ("probes while asleep", self._gate.probes),
            ("notifications per second awake", f"{job.processed / max(0.1, self._seconds - self._gate.slept_ms / 1_000):,.0f}"),
        )
        for what, figure in rows:
            table.add_row(what, str(figure))
        console.print(table)
        console.print("What the receiver took, compared with the notifications")
        console.print(self._comparison, style="green" if self.is_good else "red", highlight=False, markup=False)


def _watch(ledger: Ledger, progress: Progress, processes: Sequence[subprocess.Popen[bytes]], log: Path, port: int) -> Job:
    troubles = list(_TROUBLES)
    task = progress.add_task("delivering", total=None)
    until, before = monotonic() + _STALL_SECONDS, -1
    while monotonic() < until:
        job = ledger.find_job(_JOB)
        assert job is not None
        ended = job.ingested - job.open
        is_asleep = not ledger.gates()[0].is_open
        progress.update(
            task, description="delivering (asleep)" if is_asleep else "delivering", completed=ended, total=job.expected
        )
        if job.state is JobState.COMPLETE:
            return job
        if troubles and job.expected and ended >= troubles[0][0] * job.expected:
            httpx.put(f"{_receiver_url(port)}/_behaviour", json=troubles.pop(0)[1], trust_env=False).raise_for_status()
        if ended != before:
            until, before = monotonic() + _STALL_SECONDS, ended
        if any(each.poll() is not None for each in processes):
            raise DeliveryStalled(f"the receiver or a delivery worker ended by itself; see {log}")
        sleep(_LOOK_SECONDS)
    raise DeliveryStalled(f"nothing was delivered for {_STALL_SECONDS} s; see {log}")


@contextmanager
def _running(command: Sequence[str], log: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program of ours in a process that ends with the block."""
    process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)  # noqa: S603 - all ours.
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_START_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(port: int, server: "subprocess.Popen[bytes]") -> None:
    until = monotonic() + _START_SECONDS
    while server.poll() is None and monotonic() < until:
        try:
            httpx.get(f"{_receiver_url(port)}/_counts", trust_env=False)
        except httpx.HTTPError:
            sleep(_LOOK_SECONDS)
        else:
            return
    raise DeliveryStalled("the receiver did not start")


def _free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _receiver_url(port: int) -> str:
    return f"http://127.0.0.1:{port}"
