"""Simulated runs of a schedule: one seed determines the schedule and all faults. Replay a seed by hand with

PYTHONPATH=tests:. .venv/bin/python -m harness.simulated_schedules.runs SEED [--fault NAME]
"""

import logging
import sys
from argparse import ArgumentParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from unittest.mock import patch

from harness.simulated_schedules.world import World

from notification_service.delivery.schedules import runner
from resequencer.errors import ResequencerError

_PHASES, _STEPS = 3, 40
_AT_ONCE = 2
_FAILURES = (ResequencerError, AssertionError, KeyError, ValueError, IndexError, TypeError, AttributeError, StopIteration)


class Outcome(NamedTuple):
    """`problem` is the promise that was broken, or None. `ahead` counts the ticks that were begun before their time."""

    problem: str | None
    trace: tuple[str, ...]
    crashes: int
    other_faults: int
    requests: int
    ahead: int


def simulate(seed: int) -> Outcome:
    with TemporaryDirectory() as directory, patch.object(runner, "_REQUESTS", _AT_ONCE):
        world = World(seed, Path(directory))
        judge = world.judge
        try:
            for phase in range(_PHASES):
                world.live(_STEPS)
                world.calm(is_last=phase == _PHASES - 1)
                if judge.problem is not None:
                    break
        except _FAILURES as error:
            judge.blame(f"a worker died: {type(error).__name__}: {error}")
        finally:
            world.place.close()
    return Outcome(judge.problem, tuple(world.trace), world.crashes, world.other_faults, judge.requests, judge.ahead)


def replay_command(seed: int) -> str:
    return f"PYTHONPATH=tests:. .venv/bin/python -m harness.simulated_schedules.runs {seed}"


def main(arguments: list[str]) -> int:
    """Print the run of a seed."""
    from harness.planted.schedules import SEEDS, plant
    from pytest import MonkeyPatch  # noqa: PT013

    parser = ArgumentParser("python -m harness.simulated_schedules.runs")
    parser.add_argument("seed", type=int)
    parser.add_argument("--fault", choices=list(SEEDS))
    options = parser.parse_args(arguments)
    logging.disable()
    with MonkeyPatch().context() as patched:
        if options.fault is not None:
            plant(patched, options.fault)
        outcome = simulate(options.seed)
    summary = (
        f"{outcome.crashes} crashes, {outcome.other_faults} other faults, {outcome.requests} requests, {outcome.ahead} ahead"
    )
    print(*outcome.trace, summary, outcome.problem or "all is well", sep="\n")
    return int(outcome.problem is not None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
