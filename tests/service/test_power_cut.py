"""The power fails at any moment and takes unsynced data with it: no envelope is lost, notified twice or out of order."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from signal import SIGKILL
from tempfile import TemporaryDirectory

import pytest
from harness.crashes.outcomes import Forgets, judged
from harness.crashes.simulation import reference
from harness.disk.faulty_disk import Call, FaultyDisk
from harness.disk.power_cut import Disk, read_trace
from harness.nightly import at_night
from harness.workloads.shuffled import workload

from tests.service.watched_run import live

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("watched_run.py")
CUTS = int(os.environ.get("CUTS", "12"))


class Machine:
    """Runs a workload on a traced disk; then the power fails, and another run continues with what is left."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.root = directory / "root"
        self.root.mkdir()
        self.disk = FaultyDisk.make(directory / "faults", trace_of=self.root)
        self._seed = seed
        self._work = workload(seed)
        self._expected = reference(self._work)

    def live(self, first: int = 0) -> int:
        environment = {**self.disk.environment, "PYTHONPATH": f"{PROGRAM.parents[1]}:{PROGRAM.parents[2]}"}
        command = [sys.executable, str(PROGRAM), str(self.root), str(self._seed), str(first)]
        return subprocess.run(command, env=environment, check=False, capture_output=True).returncode

    @property
    def phase(self) -> int:
        return int((self.root / "phase").read_bytes())

    def problems(self, survival: float) -> Iterator[str]:
        """Yield what is wrong after a cut at some of the events. The input survives, because another program writes it."""
        model, phase = Disk(self.root), 0
        events = [each for each in read_trace(self.disk.trace) if each.path.parent.name != "in"]
        random = Random(self._seed)
        chosen = {len(events) - 1, *random.sample(range(len(events)), min(CUTS, len(events)))}
        for number, event in enumerate(events):
            model.take(event)
            if event.path.name == "phase":
                phase = int(event.data or phase)
            if number in chosen:
                with memory_directory() as left:
                    model.cut(Path(left), Random(number), survival)
                    outcome = judged(live(Path(left), self._work, phase), self._expected, Forgets.NOTHING)
                if outcome.problem:
                    yield f"seed {self._seed}, event {number}, {event.call.name} of {event.path.name}: {outcome.problem}"


def memory_directory() -> TemporaryDirectory[str]:
    return TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)


@pytest.fixture(params=[2, *at_night("files", 1, 6)])
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    with memory_directory() as directory:
        yield Machine(Path(directory), request.param)


@pytest.mark.parametrize("survival", [0, 0.5])
def test_the_power_may_go_at_any_moment(machine: Machine, survival: float) -> None:
    assert machine.live() == 0
    assert list(machine.problems(survival)) == []


@pytest.mark.parametrize("name", ["out/notifications.jsonl", "out/dead-letters.jsonl", "out/positions.json.tmp", "state.db-wal"])
def test_it_may_go_after_a_sync_failed_and_the_worker_died_of_it(machine: Machine, name: str) -> None:
    """The data of that sync will never be on the disk, though the next worker can read it."""
    fault = machine.disk.kill(name, Call.SYNC, skip=5)
    assert machine.live() == (-SIGKILL if fault.struck else 0)
    fault.lift()
    assert machine.live(machine.phase) == 0
    assert list(machine.problems(0)) == []
