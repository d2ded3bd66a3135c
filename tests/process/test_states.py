"""The exact output of `resequencer status` in each state, from real processes that are held in the state."""

import json
import os
import re
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import chdir, closing, redirect_stdout
from errno import EIO, ENOSPC
from io import StringIO
from pathlib import Path

import pytest
from harness.disk.faulty_disk import Call, FaultyDisk
from harness.processes.operated_daemon import Daemon
from harness.processes.operated_service import NOTIFICATION, OperatedService, envelope_line
from harness.waiting import wait_until

from notification_service.command_line import main
from notification_service.status.file import StatusFile
from notification_service.status.report import State

pytestmark = pytest.mark.slow

REPORT = "application/status.json.new"
"""This file is opened for each report. While the open is held, the last report stands, and nothing else happens."""

INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@pytest.fixture
def disk(tmp_path: Path) -> FaultyDisk:
    return FaultyDisk.make(tmp_path / "faults")


@pytest.fixture
def service(new_service: Callable[..., OperatedService], disk: FaultyDisk) -> OperatedService:
    """Its last report counts, however long a test holds the next one."""
    return new_service(f"{NOTIFICATION}.worker.stale-after=10m", environment=disk.environment)


def status_lines(service: OperatedService) -> list[str]:
    """Return the status lines with N for process ids and T for instants, without sizes and durations. Exit code 0 must mean
    ready.

    The test calls it within its own process: a new process takes so long on a busy machine that the report would be stale.
    """
    with chdir(service.directory), redirect_stdout(StringIO()) as printed:
        code = main(["status", *service.arguments])
    lines = INSTANT.sub("T", re.sub(r"(process|its worker) \d+", r"\1 N", printed.getvalue())).splitlines()
    assert code == (lines[0] != State.READY)
    return [line for line in lines if not line.startswith(("on disk: ", "last cycle with work: "))]


def until_it_says(service: OperatedService, state: State) -> None:
    wait_until(lambda: (report := StatusFile(service.run_directory).find()) is not None and report.state is state, state)


NOTHING_YET = [
    "process N since T, reported at T",
    "units: 0 active, 0 waiting with 0 stashed envelopes",
    "counts since T",
    "records 0, handled 0, duplicates 0, released units 0, dead letters 0",
    "notifications 0",
]


_OPENS = 2
"""A report is made private, and then written."""


def test_not_running(service: OperatedService) -> None:
    assert status_lines(service) == ["not running"]


def test_starting(service: OperatedService, disk: FaultyDisk) -> None:
    held = disk.hold(REPORT, Call.OPEN, skip=_OPENS)
    service.start()
    wait_until(lambda: held.struck, "its second report")
    assert status_lines(service) == ["starting", *NOTHING_YET]
    held.lift()
    until_it_says(service, State.READY)


def test_ready(service: OperatedService) -> None:
    service.start_and_wait()
    service.tell("uow-1", 2, 1)
    service.tell("uow-2", 3)
    end = (service.in_directory / "partition-0.jsonl").stat().st_size
    service.wait_for_report(
        lambda report: report.counts.get("records") == 3 and report.partitions[0].acknowledged == end, "all is read"
    )
    assert status_lines(service) == [
        "ready",
        "process N since T, reported at T",
        "units: 2 active, 1 waiting with 1 stashed envelope",
        "counts since T",
        "records 3, handled 2, duplicates 0, released units 0, dead letters 0",
        "notifications 2: ACTC 1, RCVD 1",
        f"IPF_PROCESSING_DATA-0: read to {end}, 0 behind, acknowledged {end}, 0 to publish",
        "waits since T: uow-2 for sequence:1 (1 stashed, deadline at T)",
    ]


def test_healing(service: OperatedService, disk: FaultyDisk) -> None:
    """It heals some of the lost records; the others come in later cycles."""
    service.append(*(envelope_line(f"uow-{number}", 1) for number in range(100)))
    service.start_and_wait()
    service.wait_for_report(lambda report: report.counts.get("handled") == 100, "all are handled")
    assert service.stop() == 0
    (service.run_directory / "state.db").unlink()
    held = disk.hold(REPORT, Call.OPEN, skip=2 * _OPENS)
    service.start("ipf.processing-data.ingress.batch-size=1")
    wait_until(lambda: held.struck, "its third report")
    lines = status_lines(service)
    assert lines[0] == "healing: records are being read again: the storage lost work, or an operator reset the region"
    assert re.match(r"IPF_PROCESSING_DATA-0: read to [1-9]\d*, [1-9]\d* behind, ", lines[-1])
    held.lift()
    until_it_says(service, State.READY)


@pytest.mark.parametrize(
    ("name", "calls", "error", "lines"),
    [
        (
            "state.db-log-1",
            Call.WRITE,
            ENOSPC,
            "storage unavailable: run/application/state.db-log-1: ENOSPC: No space left on device",
        ),
        (
            "out/notifications.jsonl",
            Call.SYNC,
            EIO,
            "output unavailable: run/application/out/notifications.jsonl: EIO: Input/output error",
        ),
        (
            "partition-0.jsonl",
            Call.READ,
            EIO,
            "source unavailable: run/application/in/partition-0.jsonl: EIO: Input/output error",
        ),
    ],
)
def test_away(service: OperatedService, disk: FaultyDisk, name: str, calls: Call, error: int, lines: str) -> None:
    service.tell("uow-1", 1)
    service.start_and_wait()
    service.wait_for("uow-1", 1)
    fault = disk.fail(name, calls, error)
    service.tell("uow-2", 1)
    until_it_says(service, State(lines.partition(":")[0]))
    assert status_lines(service)[0] == lines
    fault.lift()
    until_it_says(service, State.READY)
    service.wait_for("uow-2", 1)


def test_draining(service: OperatedService, disk: FaultyDisk) -> None:
    service.start_and_wait()
    first = disk.hold(REPORT, Call.OPEN)
    wait_until(lambda: first.struck, "a report")
    service.signal(signal.SIGTERM)
    # The first report, one while it drains, and no other.
    last = disk.hold(REPORT, Call.OPEN, skip=2 * _OPENS - 1)
    first.lift()
    wait_until(lambda: last.struck, "a report after that it drains")
    assert status_lines(service) == ["draining", *NOTHING_YET]
    last.lift()
    assert service.wait() == 0
    assert status_lines(service) == ["not running"]


@pytest.mark.parametrize("stopped", ["worker", "supervisor and worker"])
def test_stale(new_daemon: Callable[..., Daemon], stopped: str) -> None:
    daemon = new_daemon(f"{NOTIFICATION}.worker.stale-after=2s")
    daemon.start()
    processes = [daemon.worker, daemon.supervisor]
    for each in processes[: 1 if stopped == "worker" else 2]:
        os.kill(each, signal.SIGSTOP)
    before = daemon.report
    status = daemon.service.run_directory / "status.json"
    wait_until(lambda: time.time() - status.stat().st_mtime > 2.5, "its report is old")
    _, *nothing = NOTHING_YET
    who = "process N, its worker N since T, reported at T"
    assert status_lines(daemon.service) == ["stale: no report since T; it was ready then", who, *nothing]
    for each in processes:
        os.kill(each, signal.SIGCONT)
    daemon.wait_for(lambda report: report.reported_at > before.reported_at, "it goes on")


def test_a_worker_that_died_is_counted_and_what_it_died_of_is_said(daemon: Daemon) -> None:
    daemon.start()
    worker = daemon.worker
    os.kill(worker, signal.SIGKILL)
    daemon.wait_for_another_worker(worker)
    assert status_lines(daemon.service)[2] == "started again once: the previous worker was killed by SIGKILL at T"
    fields = json.loads(daemon.service.verb("status", "--json").stdout)
    assert fields["restarts"] == 1
    assert fields["last_exit"].startswith("was killed by SIGKILL at ")


def test_what_a_worker_said_of_its_end_is_said_while_the_next_one_tries(daemon: Daemon) -> None:
    daemon.service.tell("uow-1", 1)
    daemon.start()
    daemon.wait_for(lambda report: report.counts.get("handled") == 1, "it is handled")
    with closing(sqlite3.connect(daemon.service.run_directory / "state.db")) as database:
        database.execute("ALTER TABLE units RENAME TO misnamed")
        daemon.service.tell("uow-2", 1)
        daemon.wait_for(lambda report: report.restarts > 0 and report.last_exit is not None, "it died of it")
        assert daemon.report is not None
        assert "state.db: no such table: units" in str(daemon.report.last_exit)
        assert status_lines(daemon.service)[0] != State.READY
        database.execute("ALTER TABLE misnamed RENAME TO units")
    wait_until(daemon.is_ready, "it goes on")
    assert status_lines(daemon.service)[2].startswith("started again ")
    daemon.service.verb("stop")
    assert daemon.service.sequences("uow-2") == [1]


def test_an_input_that_was_cut_off_fails_the_region_and_ends_no_worker(daemon: Daemon) -> None:
    daemon.service.tell("uow-1", 1)
    daemon.start()
    daemon.wait_for(lambda report: report.counts.get("handled") == 1, "it is handled")
    file = daemon.service.in_directory / "partition-0.jsonl"
    whole = file.read_bytes()
    file.write_bytes(b"")
    daemon.wait_for(lambda report: report.state is State.FAILED, "resets do not help")
    first = status_lines(daemon.service)[0]
    assert first.startswith("failed: file: ")
    assert f"partition-0.jsonl: has 0 bytes but was read up to position {len(whole)}: it was cut" in first
    file.write_bytes(whole)
    assert daemon.service.verb("region", "reset").returncode == 0
    wait_until(daemon.is_ready, "it goes on")
    assert daemon.report is not None
    assert daemon.report.region is not None
    assert (daemon.report.restarts, daemon.report.region.resets) == (0, 6)


def test_two_daemons_with_two_configurations_each_say_their_own(new_daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    for name, strategy in (("one", "SEQUENCE"), ("two", "STRICT_SEQUENCE")):
        file = "ipf.processing-data.ingress.transport = file\npayment-status-notification { transport = file\n"
        file += f"resequencer {{ storage-type = embedded, strategy = {strategy} }} }}\n"
        (tmp_path / f"{name}.conf").write_text(file, encoding="utf-8")
    one, two = (new_daemon(config=f"{name}.conf") for name in ("one", "two"))
    one.start()
    two.start()
    one.service.tell("uow-1", 2)
    two.service.tell("uow-2", 1)
    one.wait_for(lambda report: report.units.waiting == 1, "it waits")
    two.wait_for(lambda report: report.counts.get("handled") == 1, "it is handled")
    assert one.report is not None
    assert (one.report.configuration, one.report.notifications) == ("one.conf", {})
    assert two.service.verb("stop").returncode == 0
    assert [status_lines(each.service)[0] for each in (one, two)] == ["ready", "not running"]
