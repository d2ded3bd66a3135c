"""When lines are written: a rate, bursts, a backlog; and what a service does that runs meanwhile."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from guardian.timers import Backlog
from notification_service.simulator.generate.plan import Bursts, Numbering, Plan
from notification_service.simulator.generate.simulation import Pacer, simulate
from notification_service.simulator.verify.verdict import Deviation

CALM: dict[str, Any] = {"duplicates": 0, "losses": 0, "late": 0, "garbage": 0}
DEADLINE_MS = 21_000


class Written:
    """Records how many lines could be read at each millisecond."""

    def __init__(self, directory: Path, **fields: Any) -> None:
        self.now = 0
        self.readable: dict[int, int] = {}
        self._partition = directory / "in" / "partition-0.jsonl"
        plan = Plan(**({"units": 60, "seed": 7} | fields))
        pacer = Pacer(lambda: self.now, self.pause)
        self.summary = simulate(plan, directory / "in", directory / "e", lambda done, of: None, self.pause, pacer)
        self.pause(0)

    def pause(self, milliseconds: int) -> None:
        self.readable[self.now] = self._partition.read_bytes().count(b"\n")
        self.now += milliseconds


def test_with_a_rate_lines_can_be_read_as_they_are_due(tmp_path: Path):
    written = Written(tmp_path, rate=100, **CALM)
    assert written.now == pytest.approx(written.summary.lines * 10, abs=40)
    assert all(lines == pytest.approx(at / 10, abs=4) for at, lines in written.readable.items())


def test_a_burst_comes_at_once_and_is_followed_by_silence(tmp_path: Path):
    written = Written(tmp_path, bursts=Bursts(100, 30_000), **CALM)
    steps = list(written.readable.items())
    assert steps == [(at, min(100 + at // 300, written.summary.lines)) for at, _ in steps]
    assert len(steps) == -(-written.summary.lines // 100)


def test_neither_changes_what_is_written(tmp_path: Path, run: Callable):
    Written(tmp_path / "rate", rate=100)
    assert (tmp_path / "rate" / "in" / "partition-0.jsonl").read_bytes() == run("plain").partition()


def test_nothing_is_moved_out_of_its_burst(run: Callable):
    """The test looks at the lines: the first hundred are the first hundred envelopes of the true order."""
    ordered = run("ordered", window=0, **CALM).partition().splitlines()
    moved = run("moved", window=500, bursts=Bursts(100, 1_000), **CALM).partition().splitlines()
    assert ordered != moved
    for at in range(0, len(ordered), 100):
        assert {*ordered[at : at + 100]} == {*moved[at : at + 100]}


def test_late_ones_of_a_backlog_follow_at_once_and_are_expected_in_time(tmp_path: Path):
    def pause(milliseconds: int) -> None:
        raise AssertionError("paused")

    plan = Plan(units=100, seed=3, late=0.2, is_backlog=True)
    backlog = simulate(plan, tmp_path / "in", tmp_path / "e", lambda done, of: None, pause)
    assert backlog.late == 0
    late = simulate(Plan(units=100, seed=3, late=0.2), tmp_path / "in2", tmp_path / "e2", lambda *_: None, lambda ms: None)
    assert late.late > 100
    assert (tmp_path / "in" / "partition-0.jsonl").read_bytes() == (tmp_path / "in2" / "partition-0.jsonl").read_bytes()


# With the real service under its own clock


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["SEQUENCE", "FULL_PAIN001"])
@pytest.mark.parametrize(
    "fields",
    [{"rate": 25.0, "window": 100}, {"bursts": Bursts(80, 2 * DEADLINE_MS)}, {"rate": 40.0, "bursts": Bursts(150, 30_000)}],
    ids=["slow", "bursts", "slow-bursts"],
)
def test_what_comes_slowly_or_after_silence_is_put_in_order(served: Callable, strategy: str, fields: dict[str, Any]):
    service = served(strategy)
    service.simulate(units=60, losses=0.01, late=0.01, garbage=0.02, conflicts=0.02, **fields)
    verdict = service.verdict()
    assert verdict.examples == ()
    assert verdict.is_good


def backlogged(service: Any, **fields: Any) -> None:
    """A service that reads the first half of its input, and is down for ten minutes while the rest comes."""
    directory = service.service.directory
    plan = Plan(units=150, seed=6, is_backlog=True, **(CALM | {"late": 0.03} | fields))
    simulate(plan, directory / "in", service.expected, lambda done, of: None, lambda milliseconds: None)
    partition = directory / "in" / "partition-0.jsonl"
    lines = partition.read_bytes().splitlines(keepends=True)
    partition.write_bytes(b"".join(lines[: len(lines) // 2]))
    service.work()
    assert service.service.report_units().waiting > 5
    service.service.stop()
    service.service.clock.advance(10 * 60_000)
    with partition.open("ab") as file:
        file.writelines(lines[len(lines) // 2 :])


def work_slowly(service: Any) -> None:
    """Read fifty records per cycle; each cycle takes longer than a deadline."""
    service.service.start()
    for _ in range(60):
        service.service.cycle.run_once()
        service.service.clock.advance(DEADLINE_MS + 1)
    service.work()


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["SEQUENCE", "STRICT_SEQUENCE", "FULL_PAIN001"])
def test_a_backlog_fed_after_an_outage_leaves_nothing_falsely_incomplete(served: Callable, strategy: str):
    """All deadlines have passed when the service starts, and more pass while it reads the missing envelopes."""
    service = served(strategy)
    service.service.plan = service.service.plan.__class__(strategy=strategy, batch_size=50)
    backlogged(service, numbering=Numbering.SEPARATE if strategy == "STRICT_SEQUENCE" else Numbering.SHARED)
    work_slowly(service)
    verdict = service.verdict()
    assert verdict.examples == ()
    assert verdict.incomplete == verdict.late == 0
    assert verdict.is_good


@pytest.mark.slow
def test_what_is_missing_from_a_backlog_is_incomplete_all_the_same(served: Callable):
    service = served()
    backlogged(service, losses=0.02)
    work_slowly(service)
    verdict = service.verdict()
    assert verdict.examples == ()
    assert verdict.incomplete > 5


@pytest.mark.slow
def test_a_deadline_that_does_not_know_the_backlog_is_found_out(served: Callable, monkeypatch: pytest.MonkeyPatch):
    """The planted fault: deadlines fire as if everything had been read."""
    caught_up = Backlog.caught_up
    monkeypatch.setattr(Backlog, "caught_up", lambda self, read_to: caught_up(self, dict.fromkeys(read_to, 2**62)))
    service = served()
    backlogged(service)
    work_slowly(service)
    found = {deviation for deviation, count in service.verdict().counts if count}
    assert Deviation.FALSELY_MARKED in found
