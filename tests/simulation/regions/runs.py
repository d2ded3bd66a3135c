"""A deterministic simulation of workers whose source and sinks are a region: one seed determines all of it.

Replay a seed by hand with

    PYTHONPATH=tests:. .venv/bin/python -m simulation.regions.runs SEED [RUN] [--fault NAME]
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from enum import StrEnum
from functools import cache
from itertools import permutations
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import NamedTuple

from harness.crashes.outcomes import Outcome, first_difference
from harness.workloads.shuffled import Workload, uncut, workload
from simulation.regions.judge import dead_of, find_lost_message, find_wrong_sink, first_of_each, told_of, values_of
from simulation.regions.world import RegionWorld, SourceKind

from resequencer.errors import ResequencerError

_TURNS = 25
_MAX_UNITS = 7
_SINKS = ("mqtt", "file", "kafka", "jms")
_FAILURES = (ResequencerError, AssertionError, KeyError, ValueError, IndexError, TypeError, AttributeError)
MIXTURES = tuple(each for count in (1, 2, 3) for each in permutations(_SINKS, count))
"""One to three sinks, in each order."""


class RegionRun(StrEnum):
    """What may happen besides crashes, takeovers and unknown outcomes."""

    CRASHES = "crashes"
    STORAGE = "storage"
    """The storage goes back to a backup, or loses everything."""
    MARKERS = "markers"
    """The markers of a sink are deleted while the service stands."""
    RESETS = "resets"
    """An operator resets regions that run, and turns take too long: what they made is not committed."""
    INITIAL = "initial"
    """An operator resets regions that read from a log to their initial state, again and again."""
    SINKS = "sinks"
    """The service is started with other sinks while output is pending."""


class Region(NamedTuple):
    """Which participants a run has."""

    kind: SourceKind
    sinks: Sequence[str]
    workers: int
    is_late: bool

    @classmethod
    def drawn(cls, seed: int, run: RegionRun) -> Region:
        random = Random(f"participants {seed} {run}")
        kind, sinks = random.choice(list(SourceKind)), random.choice(MIXTURES)
        # One process has the directory of a file sink.
        workers = 1 if "file" in sinks or run is RegionRun.SINKS else random.choice((1, 2, 2, 3))
        return cls(kind, sinks, workers, kind.is_queue and random.random() < 0.5)

    def __str__(self) -> str:
        return f"{self.kind} to {', '.join(self.sinks)}, {self.workers} workers{', messages come late' if self.is_late else ''}"


class RegionOutcome(NamedTuple):
    """What came of a run. `problem` is what is wrong with it."""

    region: Region
    problem: str | None
    crashes: int
    strikes: int
    takeovers: int
    losses: int
    resets: int
    trace: tuple[str, ...]


class Totals(NamedTuple):
    """The sums of several runs."""

    runs: int = 0
    crashes: int = 0
    takeovers: int = 0
    losses: int = 0
    resets: int = 0
    others: int = 0

    def with_run(self, outcome: RegionOutcome) -> Totals:
        named = (outcome.crashes, outcome.takeovers, outcome.losses, outcome.resets)
        return self.plus(Totals(1, *named, outcome.strikes - sum(named)))

    def plus(self, more: Totals) -> Totals:
        return Totals(*(one + other for one, other in zip(self, more, strict=True)))

    def __str__(self) -> str:
        return (
            f"{self.crashes} kills, {self.takeovers} takeovers, {self.losses} losses, {self.resets} resets, {self.others} other "
            "injected faults"
        )


def simulate(seed: int, run: RegionRun = RegionRun.CRASHES, expected: Outcome | None = None) -> RegionOutcome:
    """Do one run, and judge it."""
    region, work = Region.drawn(seed, run), workload(seed, _MAX_UNITS)
    expected = expected or reference(seed)
    with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as directory:
        world = RegionWorld(seed, work.plan, region.kind, region.sinks, region.workers, Path(directory))
        world.is_reset = 0.2 if run is RegionRun.RESETS else 0.0
        world.is_set_back = 0.04 if run is RegionRun.INITIAL else 0.0
        world.gives_back_late = 0.5 if region.is_late else 0.0
        problem = _live_through(world, work, run, Random(f"lives {seed} {run}"))
        problem = problem or world.wrong or find_wrong_sink(world) or find_lost_message(world, world.lost)
        problem = problem or _find_difference(world, region, run, expected)
        faults = world.injected_faults
        counts = (faults.crashes, faults.count, world.takeovers, world.losses, world.resets)
        return RegionOutcome(region, problem, *counts, tuple(faults.trace))


@cache
def reference(seed: int) -> Outcome:
    """Return what a single worker without faults tells, from a log into a sink."""
    work = uncut(workload(seed, _MAX_UNITS))
    world = RegionWorld(seed, work.plan, SourceKind.KAFKA, ("kafka",), 1, Path())
    problem = _live_through(world, work, RegionRun.CRASHES, None)
    left = world.left_through("kafka")
    return Outcome(told_of(left), dead_of(left), 0, 0, 0, problem=problem)


def _live_through(world: RegionWorld, work: Workload, run: RegionRun, random: Random | None) -> str | None:
    world.handler.away_until.update(work.away_until)
    world.handler.never |= work.never
    try:
        return _phases(world, work, run, random)
    except _FAILURES as error:
        return f"a worker died: {type(error).__name__}: {error}"
    finally:
        world.injected_faults.armed = False
        world.kill_all()


def _phases(world: RegionWorld, work: Workload, run: RegionRun, random: Random | None) -> str | None:
    last = len(work.phases) - 5
    struck_at = {random.randrange(last) for _ in range(random.randint(1, 3))} if random else set()
    for at, phase in enumerate(work.phases):
        if phase.is_outage:
            world.kill_all()
        world.clock.advance(phase.advance_ms)
        if work.away_until and (problem := world.calm()):
            return problem
        at_once = len(phase.lines) if phase.is_outage else len(phase.lines) // 4
        world.send(phase.lines[:at_once])
        strikes = random if at < last else None
        if problem := _pass(world, run, strikes, is_struck=False):
            return problem
        world.coming.extend(phase.lines[at_once:])
        if problem := _pass(world, run, strikes, is_struck=at in struck_at):
            return problem
    return None


def _pass(world: RegionWorld, run: RegionRun, random: Random | None, *, is_struck: bool) -> str | None:
    """Let a period of faults pass, then calm."""
    if random is not None:
        world.live(_TURNS)
        if is_struck:
            _strike(world, run, random)
    return world.calm()


def _strike(world: RegionWorld, run: RegionRun, random: Random) -> None:
    """Let happen what the run is about, in the middle of the work."""
    if run is RegionRun.STORAGE:
        if random.random() < 0.8:
            world.keep_backup()
            world.live(random.choice((1, 2, 4, 10, 20)))
        world.forget()
        if random.random() < 0.5:
            # A sink may then be ahead of what is known.
            world.kill_all()
    elif run is RegionRun.MARKERS:
        remembering = [each for each in world.sink_names if each not in ("mqtt", "xms")]
        if remembering:
            world.lose_marker(random.choice(remembering))
    elif run is RegionRun.SINKS:
        others = random.choice(MIXTURES) if random.random() < 0.5 else random.sample(world.sink_names, len(world.sink_names))
        world.change_sinks(others)
    world.live(_TURNS)


def _find_difference(world: RegionWorld, region: Region, run: RegionRun, expected: Outcome) -> str | None:
    """Compare the first sink with a run without faults, as far as nothing was forgotten and everything came in order."""
    if expected.problem is not None:
        return f"without faults: {expected.problem}"
    if run is RegionRun.SINKS or (run is RegionRun.STORAGE and region.kind.is_queue):
        return None
    left = first_of_each(world.left_through(region.sinks[0]))
    notifications, dead = told_of(left), dead_of(left)
    if lost := values_of(expected.notifications, expected.dead) - values_of(notifications, dead):
        return f"lost: {sorted(lost)}"
    if region.is_late or world.queues.are_late or run not in (RegionRun.CRASHES, RegionRun.RESETS):
        return None
    return first_difference(notifications, expected.notifications, dead, expected.dead)


def replay_command(seed: int, run: RegionRun = RegionRun.CRASHES, fault: str = "") -> str:
    words = f"PYTHONPATH=tests:. .venv/bin/python -m simulation.regions.runs {seed} {run}"
    return f"{words} --fault {fault}" if fault else words


def main(arguments: list[str]) -> int:
    """Print the run of a seed."""
    from pytest import MonkeyPatch  # noqa: PT013
    from simulation.regions.catalogue import find_fault

    parser = ArgumentParser("python -m simulation.regions.runs")
    parser.add_argument("seed", type=int)
    parser.add_argument("run", type=RegionRun, nargs="?", default=RegionRun.CRASHES, choices=list(RegionRun))
    parser.add_argument("--fault", type=find_fault)
    options = parser.parse_args(arguments)
    reference(options.seed)
    with MonkeyPatch().context() as patch:
        if options.fault is not None:
            options.fault(patch)
        outcome = simulate(options.seed, options.run)
    summary = f"{outcome.crashes} crashes, {outcome.takeovers} takeovers, {outcome.strikes} injected faults"
    print(*outcome.trace, outcome.region, summary, outcome.problem or "all is well", sep="\n")
    return int(outcome.problem is not None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
