"""A steady load for a while, with everything going on at once: nothing grows but what is meant to, and every promise is held.

Twenty seconds of it in `make nightly`; `make soak` takes half an hour (SOAK_MINUTES, SOAK_RATE).
"""

import json
import os
import re
from collections.abc import Callable, Iterator
from time import monotonic

import pytest
from harness.processes.operated_service import INGRESS, NOTIFICATION, RESEQUENCER, OperatedService
from harness.processes.steady_state import SteadyState
from harness.waiting import linger, wait_until

from notification_service.status.file import StatusFile
from notification_service.status.report import State

pytestmark = pytest.mark.slow

MINUTES = float(os.environ.get("SOAK_MINUTES", "0.35"))
RATE = int(os.environ.get("SOAK_RATE", "300"))
LINES_PER_UNIT = 7.9
WARM_UP_SECONDS = 55
"""The time until units expire as fast as new ones come (the retention, and ten seconds between two expiries), and until SQLite's
log was once as long as it may become (16 MB).
"""
SAMPLE_SECONDS = 0.25 if MINUTES < 1 else 2.0

CONFIGURATION = (
    f"{RESEQUENCER}.processing-timeout=1s",
    f"{RESEQUENCER}.idle-timeout=2s",
    f"{RESEQUENCER}.stash-timeout=10s",
    f"{RESEQUENCER}.retention=18s",
    f"{NOTIFICATION}.file.rotate-at={'1M' if MINUTES < 5 else '16M'}",
    f"{INGRESS}.file.archive-every={'5s' if MINUTES < 5 else '60s'}",
)


@pytest.fixture
def daemon(new_service: Callable[..., OperatedService]) -> Iterator[OperatedService]:
    service = new_service(*CONFIGURATION)
    yield service
    service.verb("stop")


@pytest.mark.nightly("memory")
def test_a_steady_load_makes_nothing_grow_and_every_promise_is_held(daemon: OperatedService) -> None:
    units = round(RATE * (WARM_UP_SECONDS + MINUTES * 60) / LINES_PER_UNIT)
    # Late envelopes would come after all others, when their units have long been forgotten.
    disorder = "--window 300 --duplicates 2% --conflicts 0.2% --losses 1% --late 0 --garbage 0.5% --partitions 2 --seed 4"
    assert daemon.verb("start").returncode == 0
    simulation = daemon.begin_verb("simulate", "--units", str(units), "--rate", f"{RATE}/s", *disorder.split())
    steady = SteadyState(daemon)
    linger(WARM_UP_SECONDS)  # Nothing marks its end: what is compared are the sizes from then on.
    began = monotonic()
    while simulation.poll() is None:
        steady.sample()
        linger(SAMPLE_SECONDS)
    print(f"\n{RATE} lines/s for {(monotonic() - began) / 60:.1f} minutes after a warm-up\n{steady.table()}", flush=True)
    assert simulation.returncode == 0
    wait_until(lambda: _is_idle(daemon), "everything is read and nothing waits")
    assert daemon.verb("stop").returncode == 0
    verified = daemon.verb("verify", "--json", seconds=600)
    verdict = json.loads(verified.stdout)
    print(verdict)
    assert verified.returncode == 0, verdict
    assert min(verdict["incomplete"], verdict["dead_letters"]) > 0
    assert len(list(daemon.out_directory.glob("notifications.0*.jsonl"))) >= 3
    _assert_all_was_archived(daemon)
    assert steady.grown(MINUTES) == []


def _is_idle(service: OperatedService) -> bool:
    report = StatusFile(service.run_directory).find()
    assert report is not None
    ends = {file.stem.rpartition("-")[2]: file.stat().st_size for file in service.in_directory.glob("*.jsonl")}
    read = {each.partition.rpartition("-")[2]: each.read_to for each in report.partitions}
    unpublished = sum(each.unpublished for each in report.partitions)
    return read == ends and report.units.waiting == 0 and unpublished == 0 and report.state == State.READY


def _assert_all_was_archived(service: OperatedService) -> None:
    """Check that the last call archives the rest, too, and that the pieces join without a gap."""
    archived = service.verb("archive", "--json", seconds=300)
    assert archived.returncode == 0, archived.stderr
    for file in service.in_directory.glob("*.jsonl"):
        names = sorted(each.name for each in (service.run_directory / "archive").glob(f"{file.stem}.*.gz"))
        assert len(names) >= 2
        ranges = [tuple(map(int, re.findall(r"\d{16}", name))) for name in names]
        ends = [end for _, end in ranges]
        assert [start for start, _ in ranges] == [0, *ends[:-1]]
        assert ends[-1] == file.stat().st_size
        assert file.stat().st_blocks * 512 <= 3 * 4096
