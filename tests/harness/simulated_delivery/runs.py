"""A deterministic simulation of delivery: one seed determines the jobs, the receiver, and all faults.

Replay a seed by hand with

    PYTHONPATH=tests:. .venv/bin/python -m harness.simulated_delivery.runs SEED [--fault NAME]
"""

import sys
from argparse import ArgumentParser
from collections import Counter
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import NamedTuple

import msgspec
from harness.simulated_delivery.plan import plan_of
from harness.simulated_delivery.seen import JobCounts, Row
from harness.simulated_delivery.watch import PromiseBroken
from harness.simulated_delivery.world import BEGIN_MS, World
from harness.wild_clock import WildClock
from sqlalchemy.exc import SQLAlchemyError

from notification_service.delivery.core.jobs import JobEvent
from resequencer.errors import ResequencerError

PAUSES_FROM = 1_000
"""In the runs of these seeds the operator pauses the receiver, and has rows called now."""

_STEPS = 260
_CALM_TURNS = 200
_FAILURES = (ResequencerError, SQLAlchemyError, AssertionError, KeyError, ValueError, IndexError, TypeError, AttributeError)


class Outcome(NamedTuple):
    """`problem` is the promise that was broken, or None. `ends` counts the rows by their ends."""

    problem: str | None
    crashes: int
    other_faults: int
    ends: Counter[str]
    trace: list[str]


def simulate(seed: int, directory: Path) -> Outcome:
    """Do the run of a seed. Its files are in `directory`, which is empty."""
    random = Random(f"delivery {seed}")
    clock = WildClock(Random(f"clock {seed}"), BEGIN_MS)
    world = World(plan_of(random), random, clock, directory)
    # Those of the catalogue are older than such orders, and would become other runs.
    world.pauses = seed >= PAUSES_FROM
    try:
        problem = _problem(world)
        ends = Counter(row.status for row in world.watch.all_rows())
        return Outcome(problem, world.crashes, world.other_faults, ends, world.trace)
    finally:
        world.close()


def _problem(world: World) -> str | None:
    try:
        for _ in range(_STEPS):
            world.live()
        _end(world)
        world.watch.check_end()
        for row in world.watch.all_rows():
            _check_row(row, world)
        _check_jobs(world)
    except PromiseBroken as broken:
        return str(broken)
    except _FAILURES as error:
        return f"a worker died: {type(error).__name__}: {error}"
    return None


def _end(world: World) -> None:
    """Let everything go on without faults until nothing is open. Units are released when all others have ended."""
    world.calm_down()
    for _ in range(_CALM_TURNS):
        world.calm_turn()
        seen = world.watch.seen
        if any(row.is_open and row.key not in seen.held for row in seen.rows.values()):
            continue
        if seen.held:
            world.decide_for_held_units()
            continue
        if all(_has_ended(job, world) for job in seen.jobs.values()):
            world.calm_turn()
            return


def _has_ended(job: JobCounts, world: World) -> bool:
    return job.read == len(world.plan.sources[job.id].records) if job.is_live else job.completed_at is not None


def _check_row(row: Row, world: World) -> None:
    """Check that the receiver's part explains how the row ended."""
    answered, receiver = world.receiver.answered.get(row.id, Counter[str]()), world.plan.receiver
    transient = sum(answered[f"{step} {kind}"] for step in receiver.steps.all for kind in ("500", "503", "401", "403", "broken"))
    transient += min(answered["deliver 404"], world.receiver.forgotten[row.key])
    if row.status == "processed" and row.notification_id not in world.receiver.taken:
        raise PromiseBroken(f"row {row.id} is processed, and the receiver has not taken it")
    if row.status == "rejected" and not world.plan.unwanted & {row.key, row.notification_id}:
        raise PromiseBroken(f"row {row.id} is rejected, and no answer refused it")
    is_explained = (
        not row.key
        or answered["deliver 418"] > 0
        or transient >= receiver.retry.attempts
        or answered["verify 404"] >= receiver.verify.attempts
    )
    if row.status == "failed" and not is_explained:
        raise PromiseBroken(f"row {row.id} has failed after {dict(answered)}")


def _check_jobs(world: World) -> None:
    """Check that each job has what its source has, and that its events were published, each once."""
    watch = world.watch
    lines = world.events.read_bytes().splitlines() if world.events.exists() else []
    events = [msgspec.json.decode(line, type=JobEvent) for line in lines]
    if [each.number for each in events] != list(watch.events):
        raise PromiseBroken(f"the events have the numbers {[each.number for each in events]}")
    for name, job in {**watch.gone_jobs, **watch.seen.jobs}.items():
        found = {row.dedup for row in watch.all_rows() if row.job == name}
        if job.cancelled_at is None and found != world.plan.sources[name].dedups():
            raise PromiseBroken(f"job {name} has lost {world.plan.sources[name].dedups() - found}")
        own = [each for each in events if each.job == name]
        if [each.run for each in own] != list(range(1, job.completions + 1)):
            raise PromiseBroken(f"job {name} has ended {job.completions} times, and its events are {own}")
        if own and (own[-1].processed, own[-1].failed, own[-1].expected) != (job.processed, job.failed, job.ingested):
            raise PromiseBroken(f"the event {own[-1]} is not what job {name} has")


def replay_command(seed: int, fault: str = "") -> str:
    words = f"PYTHONPATH=tests:. .venv/bin/python -m harness.simulated_delivery.runs {seed}"
    return f"{words} --fault {fault}" if fault else words


def main(arguments: list[str]) -> int:
    """Print the run of a seed."""
    from harness.planted.delivery import FAULTS, plant
    from pytest import MonkeyPatch  # noqa: PT013

    parser = ArgumentParser("python -m harness.simulated_delivery.runs")
    parser.add_argument("seed", type=int)
    parser.add_argument("--fault", choices=[each.name for each in FAULTS])
    options = parser.parse_args(arguments)
    with MonkeyPatch().context() as patch, TemporaryDirectory() as directory:
        if options.fault is not None:
            plant(patch, options.fault)
        outcome = simulate(options.seed, Path(directory))
    summary = f"{outcome.crashes} crashes, {outcome.other_faults} other faults; {dict(outcome.ends)}"
    print(*outcome.trace, summary, outcome.problem or "all is well", sep="\n")
    return int(outcome.problem is not None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
