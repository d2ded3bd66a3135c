"""A full disk: the service waits, reports it, and continues by itself.

In most tests a limit on the size of files stands for the full disk, because it can be lifted from outside; as root, a disk is
really filled.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from harness.nightly import at_night
from harness.processes.operated_daemon import Daemon
from harness.processes.operated_service import INGRESS, RESEQUENCER, OperatedService, envelope_line
from harness.waiting import DEADLINE_SECONDS, wait_until

from notification_service.status.report import State

pytestmark = pytest.mark.slow

LIMIT = 300_000
"""The limit in bytes: with embedded the database's log reaches it first, with none the notifications do."""
UNITS = 800


@pytest.mark.parametrize(
    ("storage", "state"), [*at_night("processes", ("none", State.OUTPUT_UNAVAILABLE)), ("embedded", State.STORAGE_UNAVAILABLE)]
)
def test_without_room_it_waits_says_what_is_away_and_why_and_goes_on_by_itself(
    new_service: Callable[..., OperatedService], storage: str, state: State
) -> None:
    service = new_service(f"{RESEQUENCER}.storage-type={storage}", "ipf.processing-data.ingress.batch-size=50")
    service.append(*(envelope_line(f"uow-{number}", 1) for number in range(UNITS)))
    service.start(largest_file=LIMIT)
    away = service.wait_for_report(lambda report: report.state not in (State.READY, State.STARTING), "something is away")
    assert away.state is state, away
    assert away.reason is not None
    asked = service.verb("status")
    assert asked.returncode == 1
    assert asked.stdout.startswith(f"{state}: "), asked.stdout
    assert 0 < len(service.notifications()) < UNITS
    service.allow_files_of(1 << 40)
    service.wait_for_report(lambda report: report.state == State.READY and report.counts["handled"] == UNITS, "it went on")
    keys = [each["key"] for each in service.notifications()]
    assert len(keys) == len(set(keys)) == UNITS
    assert service.stop() == 0
    what = state.removesuffix(" unavailable")
    assert [service.log.count(text) for text in (f": the {what} is unavailable, ", f": the {what} answers again")] == [1, 1]


def test_a_stop_without_room_loses_nothing(service: OperatedService) -> None:
    service.append(*(envelope_line(f"uow-{number}", 1) for number in range(UNITS)))
    service.start(largest_file=LIMIT)
    service.wait_for_report(lambda report: report.state == State.STORAGE_UNAVAILABLE, "the storage is away")
    assert service.stop() == 0
    assert service.verb("status").stdout.startswith("not running: the service ended with: ")
    service.start()
    service.wait_for_report(lambda _: len(service.notifications()) >= UNITS, "the rest has left")
    assert service.stop() == 0
    keys = [each["key"] for each in service.notifications()]
    assert len(keys) == len(set(keys)) == UNITS


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MB."""
    disk = tmp_path / "run"
    disk.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(disk)], check=False, capture_output=True)
    if mounted.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(disk: Path) -> Path:
    """Fill the disk until there is no room for another block. Return the file that fills it."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4_096))
    return ballast


def test_a_disk_that_is_really_full_is_waited_for_by_a_daemon_that_is_started_watched_and_stopped_on_it(
    small_disk: Path, new_daemon: Callable[..., Daemon], tmp_path: Path
) -> None:
    """Database, outputs, positions, status, locks and log have no room; the input is on another disk."""
    daemon = new_daemon(f'{INGRESS}.file.directory="{tmp_path}/in"')
    service = daemon.service
    service.in_directory = tmp_path / "in"
    service.append(*(envelope_line(f"uow-{number}", 1) for number in range(UNITS)))
    daemon.start()
    daemon.wait_for(lambda report: report.counts.get("handled") == UNITS, "all are handled")
    ballast = fill(small_disk)
    service.append(*(envelope_line(f"uow-{number}", 2) for number in range(UNITS)))
    daemon.wait_for(lambda report: report.state in (State.STORAGE_UNAVAILABLE, State.OUTPUT_UNAVAILABLE), "something is away")
    asked = service.verb("status")
    assert asked.returncode == 1
    assert "full (SQLITE_FULL)" in asked.stdout.splitlines()[0] or "ENOSPC" in asked.stdout.splitlines()[0], asked.stdout
    assert service.verb("stop").stdout == "stopped\n"
    begun = service.begin_verb("start")
    daemon.wait_for(
        lambda report: report.process_id == daemon.supervisor and report.state.endswith("unavailable"), "it waits again"
    )
    ballast.unlink()
    assert begun.wait(DEADLINE_SECONDS) == 0
    wait_until(lambda: len(service.notifications()) == 2 * UNITS, "all have left")
    assert [each["key"] for each in service.notifications()] == [f"uow-{number}" for number in range(UNITS)] * 2
    assert not any("possible-duplicate" in each["headers"] for each in service.notifications())
    log = daemon.log_file.read_text(encoding="utf-8")
    assert "is unavailable" in log
    assert log.rstrip().endswith("ready") or "answers again" in log
