"""Simulated runs of store workers: one seed determines the commands and all faults. Replay a seed by hand with

PYTHONPATH=tests:. .venv/bin/python -m harness.simulated_stores.runs SEED [--fault NAME]
"""

from __future__ import annotations

import logging
import sys
from argparse import ArgumentParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from harness.simulated_stores.world import World

from resequencer.errors import ResequencerError

_TURNS = 60
_PHASES = 3
_FAILURES = (ResequencerError, AssertionError, KeyError, ValueError, IndexError, TypeError, AttributeError)


class Outcome(NamedTuple):
    """`problem` is what is wrong with the run. `applied` counts the offsets of commands, `completions` the reports."""

    problem: str | None
    trace: tuple[str, ...]
    crashes: int
    other_faults: int
    applied: int
    completions: int


def simulate(seed: int, directory: Path | None = None) -> Outcome:
    """Do one run. Its copies are in `directory`, or in one that is deleted at its end."""
    if directory is None:
        with TemporaryDirectory(dir=_quick_directory()) as made:
            return simulate(seed, Path(made))
    world = World(seed, directory)
    with world.patched():
        try:
            _run(world)
        except _FAILURES as error:
            world.judge.blame(f"{type(error).__name__}: {error}")
        finally:
            world.injected_faults.armed = False
            world.kill_all()
    faults, judge = world.injected_faults, world.judge
    return Outcome(
        judge.problem, tuple(faults.trace), faults.crashes, faults.count - faults.crashes, judge.applied, judge.completions
    )


def replay_command(seed: int) -> str:
    return f"PYTHONPATH=tests:. .venv/bin/python -m harness.simulated_stores.runs {seed}"


def _run(world: World) -> None:
    for phase in range(_PHASES):
        world.live(_TURNS)
        if phase == _PHASES - 1:
            world.send_all()
        if world.judge.problem is None:
            world.calm()
        if world.judge.problem is not None:
            return
    world.judge.judge_end()
    if not world.plan.has_instants:
        world.judge.judge_all_commands()


def _quick_directory() -> str | None:
    """Return a directory in memory, where there is one: the copies of a run are written anew some hundred times."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def main(arguments: list[str]) -> int:
    """Print the run of a seed."""
    from harness.planted.stores import find_fault
    from pytest import MonkeyPatch  # noqa: PT013

    parser = ArgumentParser("python -m harness.simulated_stores.runs")
    parser.add_argument("seed", type=int)
    parser.add_argument("--fault", type=find_fault)
    options = parser.parse_args(arguments)
    logging.disable()
    with MonkeyPatch().context() as patch:
        if options.fault is not None:
            options.fault(patch)
        outcome = simulate(options.seed)
    summary = f"{outcome.crashes} crashes, {outcome.other_faults} other faults, {outcome.completions} reports"
    print(*outcome.trace, summary, outcome.problem or "all is well", sep="\n")
    return int(outcome.problem is not None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
