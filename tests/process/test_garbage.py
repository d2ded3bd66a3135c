"""A worker fed with garbage: every record is an envelope or a dead letter with its exact bytes, and nothing stops or grows.

Twenty thousand records in `make test`; `make soak` takes a million (RECORDS, SEARCH_SEED).
"""

import os
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from time import monotonic

import pytest
from harness.garbled.accounting import Accounting, is_blank
from harness.garbled.lines import garbled_lines
from harness.nightly import SEED
from harness.processes.operated_daemon import Daemon
from harness.processes.operated_service import RESEQUENCER
from harness.processes.steady_state import SteadyState
from harness.waiting import wait_until

from notification_service.status.report import StatusReport

pytestmark = pytest.mark.slow

RECORDS = int(os.environ.get("RECORDS", "20000"))
QUICK = [f"{RESEQUENCER}.{each}" for each in ("stash-timeout=2s", "processing-timeout=1s", "idle-timeout=2s")]
AT_ONCE = 2_000
AHEAD = 20_000
"""How many records may lie unread: a backlog delays deadlines, and this test is not about waiting."""
WARM = min(300_000, RECORDS // 3)
"""The number of records after which caches are full, and as many actors stop as begin."""
ENOUGH_TO_JUDGE = 700_000
"""The number of records after that, to tell growth from a warm-up."""


def test_any_garbage_is_an_envelope_or_a_dead_letter_with_its_bytes_and_the_worker_goes_on(
    new_daemon: Callable[..., Daemon], tmp_path: Path
) -> None:
    daemon = new_daemon(*QUICK)
    daemon.start()
    worker, steady = daemon.worker, SteadyState(daemon.service)
    began, written = monotonic(), 0
    lines = garbled_lines(SEED, tmp_path / "simulated")
    while written < RECORDS:
        written += append(daemon, list(islice(lines, AT_ONCE)))
        daemon.wait_for(lambda report, least=written - AHEAD: report.counts.get("records", 0) >= least, "it keeps up")
        if written > WARM:
            steady.sample()
    wait_until(lambda: is_idle(daemon.report, written), "everything is read and nothing waits", 300)
    seconds, report = monotonic() - began, daemon.report
    assert report is not None
    assert daemon.worker == worker, "it was started again"
    assert daemon.service.verb("stop").returncode == 0
    accounting = Accounting(daemon.service.in_directory, daemon.service.out_directory)
    accounting.run()
    print(f"\n{accounting.records} records in {seconds:.0f} s: {dict(accounting.fates)}\n{steady.table()}")
    assert_counts_agree(report, accounting)
    assert not [
        file for file in daemon.service.run_directory.glob("service.log*") if "resequencer.supervisor" in file.read_text()
    ]
    if RECORDS - WARM >= ENOUGH_TO_JUDGE:
        assert not [each for each in steady.grown() if "memory" in each or "handles" in each], steady.grown()


def append(daemon: Daemon, lines: list[tuple[int, bytes]]) -> int:
    """Append lines. Return how many records they make."""
    daemon.service.in_directory.mkdir(parents=True, exist_ok=True)
    for number in {partition for partition, _ in lines}:
        with (daemon.service.in_directory / f"partition-{number}.jsonl").open("ab") as file:
            file.writelines(line for partition, line in lines if partition == number)
    return sum(not is_blank(each) for _, line in lines for each in line.split(b"\n"))


def is_idle(report: StatusReport | None, records: int) -> bool:
    if report is None or report.counts.get("records", 0) < records:
        return False
    return report.units.waiting == 0 and sum(each.unpublished for each in report.partitions) == 0


def assert_counts_agree(report: StatusReport, accounting: Accounting) -> None:
    """Compare the service's own counts since its start, before the first record, with those computed from the input."""
    counts, fates = report.counts, accounting.fates
    assert counts["records"] == accounting.records
    assert counts["handled"] == fates["handled"]
    assert counts["duplicates"] == fates["duplicates"]
    assert dict(report.dead_letters) == {name: count for name, count in fates.items() if name not in ("handled", "duplicates")}
    assert counts["arrived"] == fates["handled"] + fates["duplicates"] + fates["conflicting-duplicate"]
