"""Workers that fail at any step, and publish their last positions: the output is that of a run without faults.

Each exit of a simulated run is a failure here: what the worker has in memory stands where it was struck.
"""

from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from harness.crashes import simulation as on_files
from harness.crashes.points import Crash
from harness.workloads.shuffled import workload
from simulation import runs
from simulation.regions import runs as regions
from simulation.regions.worker import RegionWorker
from simulation.runs import SimulatedRun
from simulation.worker import Worker

from guardian.cycle import Cycle
from guardian.owned_partition import OwnedPartition
from guardian.ports import PartitionOutput
from guardian.positions import Positions
from resequencer.errors import ResequencerError

pytestmark = pytest.mark.slow
_STEPS = 29
"""On files, one step of so many is struck."""

_FAIL = 0.1
"""How many cycles fail while they decide."""


class LastPublications:
    """Lets workers fail, and publishes their last positions. Positions move with output alone until then.

    Counts the failures after which something was published, and those after which nothing was.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.published = self.refrained = 0
        self._random = Random(39)
        due = Positions.due
        patch.setattr(Positions, "due", lambda self, now, throttle_ms: not throttle_ms and due(self, now, throttle_ms))
        die = on_files._SimulatedRun._die

        def fail(run: Any) -> None:
            self._publish(run._service._cycle, run._steps)
            die(run)

        patch.setattr(on_files._SimulatedRun, "_die", fail)
        for kind in (Worker, RegionWorker):
            self._make_fail(patch, kind)

    def _make_fail(self, patch: pytest.MonkeyPatch, kind: Any) -> None:
        """Each exit of these workers is a failure, and some fail while they decide."""
        forget, work = kind._forget, kind._work

        def fail(worker: Any) -> None:
            self._publish(worker.cycle, worker._world.injected_faults)
            forget(worker)

        def work_or_fail(worker: Any) -> bool:
            if worker.actors is not None and worker._world.injected_faults.armed and self._random.random() < _FAIL:
                worker.actors.decide = _fail
            return bool(work(worker))

        patch.setattr(kind, "_forget", fail)
        patch.setattr(kind, "_work", work_or_fail)

    def _publish(self, cycle: Cycle | None, faults: Any) -> None:
        """Do what a worker does that has failed, also if no position has moved. No fault happens meanwhile."""
        if cycle is None:
            return
        armed, faults.armed = faults.armed, False
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Positions, "has_moved", lambda _: True)
            positions = cycle.last_positions(ArithmeticError("a mistake of ours"))
        with suppress(ResequencerError):
            if positions:
                cycle._transport.publish(positions)
        faults.armed = armed
        self.published += bool(positions)
        self.refrained += not positions


def _fail(*_: Any) -> None:
    raise Crash("a mistake of ours")


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch) -> Iterator[LastPublications]:
    """Every worker of a simulation that ends has failed."""
    made = LastPublications(monkeypatch)
    yield made
    assert made.published > 10
    assert made.refrained > 10


@pytest.mark.usefixtures("failures")
def test_on_files_a_failure_at_any_step_changes_nothing() -> None:
    work = workload(21)
    expected = on_files.reference(work)
    for step in range(1, expected.steps + 1, _STEPS):
        outcome = on_files.crash_at(work, step, expected)
        assert outcome.problem is None, f"{outcome.problem} after {outcome.trace}"


@pytest.mark.usefixtures("failures")
@pytest.mark.parametrize("run", [SimulatedRun.CRASHES, SimulatedRun.NONE])
def test_on_kafka_failures_lose_and_double_nothing(run: SimulatedRun) -> None:
    for seed in range(5):
        assert runs.simulate(seed, run).problem is None, seed


@pytest.mark.usefixtures("failures")
def test_in_regions_failures_lose_and_double_nothing() -> None:
    for seed in range(5):
        assert regions.simulate(seed).problem is None, seed


def done_to_what_was_read_last(patch: pytest.MonkeyPatch) -> None:
    """What the failed cycle has read counts as done, though it was not committed."""
    right = OwnedPartition._done_beyond

    def faulty(self: OwnedPartition, position: int, unsettled: Any, _: int) -> Any:
        return right(self, position, unsettled, self.read_to)

    patch.setattr(OwnedPartition, "_done_beyond", faulty)


def output_of_a_failed_commit(patch: pytest.MonkeyPatch) -> None:
    """Output is published, too, though the commit that it belongs to may have failed."""

    def faulty(self: Cycle, _: Exception) -> list[PartitionOutput]:
        return [each.output(len(each.unpublished)) for each in self.partitions.owned.values()]

    patch.setattr(Cycle, "last_positions", faulty)


@pytest.mark.parametrize(
    ("fault", "run"), [(done_to_what_was_read_last, SimulatedRun.NONE), (output_of_a_failed_commit, SimulatedRun.CRASHES)]
)
def test_a_planted_fault_is_noticed(fault: Any, run: SimulatedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    LastPublications(monkeypatch)
    fault(monkeypatch)
    assert any(runs.simulate(seed, run).problem for seed in range(6))
